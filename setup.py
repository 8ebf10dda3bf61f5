"""Build the C accelerator where that works, and tag a wheel by what is in it.

All metadata is in setup.cfg and pyproject.toml. The extension is optional: without a compiler the build goes on in pure
Python. setuptools would still tag that wheel for this platform; here it becomes py3-none-any.

`KWIRE_NO_EXTENSIONS=1` leaves the extension out on purpose.
"""

import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class Wheel(bdist_wheel):
    """Build the extension first: whether it succeeds decides the tag."""

    def run(self) -> None:
        leave_out_what_was_not_built(self)
        super().run()


def leave_out_what_was_not_built(command: bdist_wheel) -> None:
    distribution = command.distribution
    if distribution.has_ext_modules() and not command.skip_build:
        build_ext = command.get_finalized_command("build_ext")
        command.run_command("build_ext")
        built = [ext for ext in distribution.ext_modules if os.path.exists(build_ext.get_ext_fullpath(ext.name))]
        distribution.ext_modules = built or None
    if not distribution.has_ext_modules():
        command.root_is_pure = True
        command.py_limited_api = ""


class Kwire(Distribution):
    """Drop the extensions if the environment asks for a pure build."""

    def parse_config_files(self, *args: object, **options: object) -> None:
        super().parse_config_files(*args, **options)
        if os.environ.get("KWIRE_NO_EXTENSIONS", "") not in ("", "0"):
            self.ext_modules = None


setup(cmdclass={"bdist_wheel": Wheel}, distclass=Kwire)
