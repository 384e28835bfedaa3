"""Live view in a browser: one page, and images as a stream of JPEG (multipart/x-mixed-replace), shown without a script."""

import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from string import Template

import cv2

from gate_racer.link.sockets import parse_address
from gate_racer.sim.view.texture import Image
from gate_racer.vehicle.errors import UserError

PORT = 8766  # default TCP port of the page (chosen)
ADDRESS = f"127.0.0.1:{PORT}"
LINGER_S = 2.0  # s after the last frame for clients to finish reading (chosen)
QUALITY = 85  # of 100, JPEG quality (chosen)
BOUNDARY = "frame"  # separator of the stream's parts
PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
  body { font: 15px/1.45 system-ui, sans-serif; background: #1e1e1e; color: #ddd }
  body { margin: 1em auto; max-width: 1200px; padding: 0 1em }
  img { width: 100%; height: auto }
</style>
<p>$title</p>
<img src="live" alt="state of the drone, its path, and its camera image">
</html>
""")
POLICY = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class BrowserView:
    """Server of the newest frame. Slow clients do not delay the flight."""

    def __init__(self, address: str, title: str):
        """Start the server.

        Raises:
            UserError: the address is invalid or in use.
        """
        host, port = parse_address(address, PORT)
        self._page = PAGE.substitute(title=html.escape(title)).encode()
        self._news = threading.Condition()
        self._jpeg, self._number, self._over = b"", 0, False
        view = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                view.answer(self)

            def log_message(self, *_: object) -> None:
                """Suppress the server's log."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise UserError(f"--browser {address}: cannot be served there ({error.strerror})") from None
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, name="browser", daemon=True).start()

    def show(self, frame: Image, step: int) -> None:
        jpeg = cv2.imencode(".jpg", frame, (cv2.IMWRITE_JPEG_QUALITY, QUALITY))[1].tobytes()
        with self._news:
            self._jpeg, self._number = jpeg, self._number + 1
            self._news.notify_all()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request, in its own thread."""
        if request.path == "/":
            self._head(request, "text/html; charset=utf-8", len(self._page))
            request.wfile.write(self._page)
        elif request.path == "/live":
            self._head(request, f"multipart/x-mixed-replace; boundary={BOUNDARY}", None)
            self._stream(request)
        else:
            request.send_error(404)

    @staticmethod
    def _head(request: BaseHTTPRequestHandler, kind: str, length: int | None) -> None:
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Security-Policy", POLICY)
        request.send_header("Cache-Control", "no-store")
        if length is not None:
            request.send_header("Content-Length", str(length))
        request.end_headers()

    def _stream(self, request: BaseHTTPRequestHandler) -> None:
        sent, over = 0, False
        try:
            request.wfile.write(f"--{BOUNDARY}\r\n".encode())
            while not over:
                with self._news:
                    while self._number <= sent and not self._over:
                        self._news.wait()
                    jpeg, sent, over = self._jpeg, self._number, self._over
                if not jpeg:  # closed before the first frame
                    return
                head = f"Content-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                request.wfile.write(head.encode() + jpeg + f"\r\n--{BOUNDARY}\r\n".encode())
        except OSError:
            return  # the client has disconnected

    def close(self) -> None:
        """Send the last frame once more and end all streams; browsers keep showing it."""
        with self._news:
            self._over = True
            self._news.notify_all()
        self._server.shutdown()
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join(LINGER_S)
        self._server.server_close()
