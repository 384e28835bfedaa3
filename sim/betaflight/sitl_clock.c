/* Loaded before Betaflight's simulator: the clock of its main thread is the simulation's.
 *
 * Whenever the firmware sleeps past what it was granted it writes until when, and waits for a later grant (both uint64, ns) on the
 * socket $SITL_CLOCK_FD. Looking at the clock costs a little time, since its scheduler waits for the next loop by looking.
 * Its UDP and TCP threads keep the system's clock.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 200

static int clock_fd = -1;
static uint64_t now_ns, granted_ns;

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("SITL_CLOCK_FD");
    clock_fd = given ? atoi(given) : -1;
}

static int simulated(void)
{
    return clock_fd >= 0 && syscall(SYS_gettid) == getpid();
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    if (id != CLOCK_MONOTONIC || !simulated())
        return syscall(SYS_clock_gettime, id, at);
    now_ns += LOOK_NS;
    at->tv_sec = now_ns / 1000000000u;
    at->tv_nsec = now_ns % 1000000000u;
    return 0;
}

int nanosleep(const struct timespec *asked, struct timespec *left)
{
    if (!simulated())
        return syscall(SYS_nanosleep, asked, left);
    now_ns += (uint64_t)asked->tv_sec * 1000000000u + asked->tv_nsec;
    while (granted_ns < now_ns) {
        if (write(clock_fd, &now_ns, sizeof now_ns) != sizeof now_ns || read(clock_fd, &granted_ns, sizeof granted_ns) != sizeof granted_ns)
            _exit(0); /* the simulation is gone */
    }
    return 0;
}
