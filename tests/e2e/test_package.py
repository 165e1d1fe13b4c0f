"""The wheel: what is in it, and that all of its parts say the same version."""

import importlib.metadata
import re
import subprocess
import sys

import salus
from harness import ROOT, salus_binary, salus_library


def test_versions_agree():
    manifest = (ROOT / "Cargo.toml").read_text()
    (version,) = re.findall(r'^version = "([^"]+)"', manifest, re.MULTILINE)
    assert salus.__version__ == version == importlib.metadata.version("salus")
    said = subprocess.run([salus_binary(), "--version"], capture_output=True, text=True)
    assert version in said.stdout, said


def test_contents():
    files = {str(file) for file in importlib.metadata.files("salus")}
    assert "salus/libpjrt_salus.so" in files
    assert "salus/libsalus_child.so" in files
    assert "salus/jax_plugin.py" in files
    assert any(name.endswith("bin/salus") for name in files), files
    assert salus_library().exists() and salus_binary().exists()


def test_jax_is_not_a_dependency():
    assert importlib.metadata.requires("salus") == ["xla-cpu-pjrt==0.0.1"]


def test_importing_it_costs_nothing():
    script = "import sys, salus; assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_module_stands_alone():
    """`salus run` copies it into the path of Pythons that lack the package."""
    text = (ROOT / "python" / "salus" / "jax_plugin.py").read_text()
    assert not re.search(r"^\s*(from|import) (salus|\.)", text, re.MULTILINE)
