"""How to call this command again, for lines that people paste into a shell: an environment that is not activated has no
`omnirt` on its PATH.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def called() -> str:
    """`omnirt`, or what stands for it here."""
    if shutil.which("omnirt"):
        return "omnirt"
    if Path(sys.argv[0]).name == "omnirt":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m omnirt.cli.main"
