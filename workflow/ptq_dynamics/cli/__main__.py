"""Run `ptq-dynamics` as `python -m ptq_dynamics.cli`."""

from ptq_dynamics.cli import main

raise SystemExit(main())
