"""What a wheel is: every room within `gate_racer`, so that no name as general as `sim` or `link` is laid into site-packages.

pyproject.toml says the rest; editable installs take the rooms as they lie. It is done while `build_py` copies, since a tree that
is generated first, for `package-dir` to point at, would have to be kept true, and out of the way of editable installs.
"""

import ast
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

NAME = "gate_racer"


def within(package: str) -> str:
    """A package's name once installed: `gate_racer.planner.course` of `planner.course`."""
    return package if room_of(package) == NAME else f"{NAME}.{package}"


def room_of(module: str) -> str:
    return module.partition(".")[0]


def rewrite_imports(source: bytes, rooms: Collection[str]) -> bytes:
    """Imports of rooms as imports from within `gate_racer`; every statement stays in its line.

    Raises:
        ValueError: `import planner.plan` without `as` binds `planner`, which no import from within can do.
    """
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_names_of_rooms(ast.parse(source), rooms), reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + f"{NAME}.".encode() + text[column:]
    return b"".join(lines)


def _names_of_rooms(tree: ast.Module, rooms: Collection[str]) -> Iterator[tuple[int, int]]:
    """Line and column (in bytes) where the name of an imported module begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and room_of(node.module or "") in rooms:
            yield node.lineno, node.col_offset + len("from ")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if room_of(alias.name) in rooms:
                    if alias.asname is None:
                        raise ValueError(f"line {alias.lineno}: import {alias.name}: needs `as`, or `from`")
                    yield alias.lineno, alias.col_offset


class BuildWithin(build_py):
    """Lays every package within `gate_racer`; in editable mode, which copies nothing, it changes nothing."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # a wheel takes all that an earlier build has left there
            self.rooms = {room_of(package) for package in self.packages} - {NAME}
            self.package_dir = {within(package): package.replace(".", "/") for package in self.packages}
            self.package_data = {within(package): data for package, data in self.package_data.items()}
            self.packages = [within(package) for package in self.packages]
            self.data_files = self._get_data_files()
        super().run()

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        outfile, copied = super().build_module(module, module_file, package)
        path = Path(outfile)
        path.write_bytes(rewrite_imports(path.read_bytes(), self.rooms))
        return outfile, copied


class OneName(Distribution):
    """Tells `importlib.metadata` of the one name at the top (top_level.txt)."""

    def iter_distribution_names(self) -> Iterator[str]:
        yield NAME


if __name__ == "__main__":
    setup(distclass=OneName, cmdclass={"build_py": BuildWithin})
