"""Runs modules of CPython's test suite and writes a verdict for each test into the file $VERDICTS, as it comes.

unittest_verdicts.py MODULE...      $EXCLUDED: patterns of tests that are not run, one a line
"""
import fnmatch
import os
import sys
import unittest

from test import support

support.use_resources = ["network", "cpu", "subprocess"]
support.verbose = False
verdicts = open(os.environ["VERDICTS"], "a", buffering=1)
owner = os.getpid()
excluded = os.environ.get("EXCLUDED", "").split()


class Verdicts(unittest.TestResult):
    """One line when a test begins and one when it ends; a subtest that fails makes its test fail."""

    def tell(self, verdict, test):
        # Tests fork, and some children run on into this code.
        if os.getpid() == owner:
            verdicts.write(f"{verdict}\t{test.id()}\n")

    def startTest(self, test):
        super().startTest(test)
        self.failed_subtest = False
        self.tell("running", test)

    def addSuccess(self, test):
        self.tell("failed" if self.failed_subtest else "ok", test)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            print(self._exc_info_to_string(error, test), file=sys.stderr)
            self.failed_subtest = True
            self.tell("failed", test)

    def addError(self, test, error):
        super().addError(test, error)
        print(test.id(), self.errors[-1][1], sep="\n", file=sys.stderr)
        self.tell("failed", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        print(test.id(), self.failures[-1][1], sep="\n", file=sys.stderr)
        self.tell("failed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell("skipped", test)

    def addExpectedFailure(self, test, error):
        self.tell("ok: fails as expected", test)

    def addUnexpectedSuccess(self, test):
        self.tell("failed: succeeds unexpectedly", test)


def tests_of(suite):
    """The tests of a suite that are not excluded, in a suite of the same shape: class and module fixtures hold."""
    kept = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(tests_of(test))
        elif not any(fnmatch.fnmatchcase(test.id(), pattern) for pattern in excluded):
            kept.addTest(test)
    return kept


def load(name):
    """A module's tests; one that skips itself while it is loaded (for Windows only, say) counts as a test that was skipped."""
    try:
        return unittest.defaultTestLoader.loadTestsFromName(name)
    except unittest.SkipTest as reason:
        print(name, reason, file=sys.stderr)
        verdicts.write(f"skipped\t{name}\n")
        return unittest.TestSuite()


if __name__ == "__main__":
    loaded = unittest.TestSuite(load(f"test.{name}") for name in sys.argv[1:])
    result = Verdicts()
    tests_of(loaded).run(result)
    verdicts.flush()
    sys.exit(0 if result.wasSuccessful() else 1)
