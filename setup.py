"""Build of the wheel: all rooms within `gate_racer`, so that no name as general as `sim` or `link` is installed at the top level.

pyproject.toml has the rest; an editable install uses the rooms where they are. `build_py` rewrites each module as it copies it:
a generated tree with `package-dir` would have to be kept up to date, and editable installs would have to avoid it.
"""

import ast
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

NAME = "gate_racer"


def within(package: str) -> str:
    """Return the installed name of a package: `gate_racer.planner.course` for `planner.course`."""
    return package if room_of(package) == NAME else f"{NAME}.{package}"


def room_of(module: str) -> str:
    """Return the top-level package of a module."""
    return module.partition(".")[0]


def rewrite_imports(source: bytes, rooms: Collection[str]) -> bytes:
    """Return a module's source with imports of rooms changed to imports from `gate_racer`; line numbers are kept.

    Raises:
        ValueError: `import planner.plan` without `as`, which binds the name `planner`.
    """
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_names_of_rooms(ast.parse(source), rooms), reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + f"{NAME}.".encode() + text[column:]
    return b"".join(lines)


def _names_of_rooms(tree: ast.Module, rooms: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield line and column (bytes) of the module's name in each import of a room."""
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
    """Copy all packages into `gate_racer`; in editable mode nothing is copied."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # the wheel would include files of earlier builds
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
    """Distribution with one top-level name, for top_level.txt, which `importlib.metadata` reads."""

    def iter_distribution_names(self) -> Iterator[str]:
        yield NAME


if __name__ == "__main__":
    setup(distclass=OneName, cmdclass={"build_py": BuildWithin})
