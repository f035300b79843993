from conftest_exercises import facts  # noqa: F401
