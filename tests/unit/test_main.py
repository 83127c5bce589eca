"""The process of a command, from its first line on."""

import subprocess
import sys
from textwrap import dedent


def test_an_interrupt_while_modules_load_ends_the_command_as_any_other() -> None:
    code = """
        import sys
        class Interrupted:
            def find_spec(self, name, *_):
                if name == "pydantic":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupted())
        from proxy.__main__ import main
        sys.exit(main())
    """
    ended = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")
