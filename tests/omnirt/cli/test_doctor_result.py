import msgspec

from omnirt.cli.doctor_result import versions


def test_packages_are_those_that_are_installed_with_their_versions_and_those_that_are_not():
    found, missing = versions(("msgspec", "no-such-package-of-ours"))
    assert (found, missing) == ([f"msgspec {msgspec.__version__}"], ["no-such-package-of-ours"])
