"""`python -m ptq_dynamics.cli` is the command `ptq-dynamics`."""

import sys

from ptq_dynamics.cli import main

sys.exit(main())
