"""Builds the wheel: the package's files and the shared library that cargo makes. Needs nothing but Python and cargo.

SHUNT_BUFFERS_LIBRARY names a library that is there already.
"""
import base64
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME = "shunt_buffers"
VERSION = re.search(r'^version = "(.*)"', (HERE / "pyproject.toml").read_text(), re.M)[1]
FACTS = f"{NAME}-{VERSION}.dist-info"
TAG = f"py3-none-linux_{platform.machine()}"


def _library():
    given = os.environ.get("SHUNT_BUFFERS_LIBRARY")
    if given:
        return pathlib.Path(given)
    if not shutil.which("cargo"):
        sys.exit("shunt_buffers is built by cargo, which is not in PATH: install Rust (https://rustup.rs), or say by SHUNT_BUFFERS_LIBRARY which library to take")
    command = ["cargo", "build", "--release", "--package", "shunt-buffers-c", "--message-format", "json"]
    made = subprocess.run(command, cwd=HERE.parent, check=True, stdout=subprocess.PIPE).stdout
    messages = [json.loads(line) for line in made.splitlines() if line.startswith(b"{")]
    files = [name for message in messages for name in message.get("filenames", [])]
    return pathlib.Path(next(name for name in files if name.endswith("libshunt_buffers_c.so")))


def _facts():
    readme = (HERE / "README.md").read_text()
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: shunt-buffers\nVersion: {VERSION}\nRequires-Python: >=3.9\n"
        f"Provides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\nDescription-Content-Type: text/markdown\n\n{readme}",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: shunt\nRoot-Is-Purelib: false\nTag: {TAG}\n",
    }


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted((HERE / "src" / NAME).glob("*.py"))}
    files[f"{NAME}/libshunt_buffers_c.so"] = _library().read_bytes()
    files.update({f"{FACTS}/{name}": text.encode() for name, text in _facts().items()})
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{FACTS}/RECORD"] = (record + f"{FACTS}/RECORD,,\n").encode()
    wheel = f"{NAME}-{VERSION}-{TAG}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the library is built from the whole tree: pip install ./python")
