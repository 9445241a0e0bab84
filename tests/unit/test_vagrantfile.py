"""The Vagrant box must not grow a second way of installing Railbed."""

from __future__ import annotations

import os
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VAGRANTFILE = (REPOSITORY / "Vagrantfile").read_text()
ENTRY = (REPOSITORY / "railbed").read_text()


def test_the_box_is_provisioned_by_the_script_of_the_entry() -> None:
    (script,) = re.findall(r'inline: "/vagrant/(\S+)"', VAGRANTFILE)
    assert os.access(REPOSITORY / script, os.X_OK)
    assert f"provision=$root/{script}" in ENTRY


def test_what_provisioning_installs_is_not_copied_into_the_box() -> None:
    (excluded,) = re.findall(r"rsync__exclude: (\[.*\])", VAGRANTFILE)
    assert excluded == '[".venv/", ".tools/", "runs/"]'


def test_the_box_is_big_enough_with_each_provider() -> None:
    assert "%w[virtualbox libvirt].each" in VAGRANTFILE
    assert int(re.findall(r"machine\.cpus = (\d+)", VAGRANTFILE)[0]) >= 2
    assert re.findall(r"machine\.memory = (\d+)", VAGRANTFILE) == ["8192"]
