"""Build from an empty folder: setuptools would put modules that an earlier build left in build/ into the wheel."""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildAnew(build_py):
    """Copy all packages as they are; in editable mode nothing is copied."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildAnew})
