"""Run the public conformance suite of the Python array API standard on ``aiodev.array_api``: a program.

The suite is data-apis/array-api-tests, which is not part of this repository. ``ARRAY_API_TESTS`` names the folder of a checkout
with its submodule, the standard itself; what it needs is in its requirements.txt. Arguments are pytest's::

    ARRAY_API_TESTS=~/array-api-tests python tests/array_api.py --max-examples=20 -q

With ``--record`` the calls that its tests make are written to ``tests/array/standard_calls.json.gz``, each with what it gave:
``tests/array/test_standard_calls.py`` makes them again where the suite is not at hand.

Every test passes but those in ``SKIPPED``, which says of each why. Without the folder nothing is run, and the status is 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
#: Tests that are not run, and why.
SKIPPED = {
    "array_api_tests/test_data_type_functions.py::test_can_cast": "asks what its table lacks with `== dtype('float64')`, which "
    "NumPy's dtypes answer with True for None: it expects every dtype to go into float64 where it meets such a pair",
}


def main(arguments: list[str]) -> int:
    """Run it; gives pytest's status."""
    named = os.environ.get("ARRAY_API_TESTS")
    if not named:
        print("ARRAY_API_TESTS names no checkout of data-apis/array-api-tests: the array API suite is not run")
        return 0
    suite = Path(named).expanduser().resolve()
    if not (suite / "array-api" / "src").is_dir():
        print(f"{suite}: no checkout of data-apis/array-api-tests with its submodule (git submodule update --init)")
        return 2
    with tempfile.NamedTemporaryFile("w", prefix="array_api_", suffix=".txt") as skips:
        skips.writelines(f"# {reason}\n{name}\n" for name, reason in SKIPPED.items())
        skips.flush()
        environment = {
            **os.environ,
            "ARRAY_API_TESTS_MODULE": "aiodev.array_api",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", ""), str(SUPPORT)]),
        }
        if "--record" in arguments:
            arguments = [argument for argument in arguments if argument != "--record"]
            environment["ARRAY_API_TESTS_MODULE"] = "recorded_array_api"
            environment["AIODEV_TESTS_RECORD"] = str(ROOT / "tests" / "array" / "standard_calls.json.gz")
        tests = [] if any("array_api_tests" in argument for argument in arguments) else ["array_api_tests"]
        options = ["-p", "busy_machine", "-p", "no:cacheprovider", "--disable-deadline", f"--skips-file={skips.name}"]
        return subprocess.call([sys.executable, "-m", "pytest", *options, *arguments, *tests], cwd=suite, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
