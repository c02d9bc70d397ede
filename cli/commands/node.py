"""zen node: the machine at hand as the whole cluster. No cloud, no group: its own GPUs."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.up import Manner, bring_up
from cli.options import command

GPUS_MAX = 64


@command
def node(
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            min=0,
            max=GPUS_MAX,
            metavar="N",
            help="Use this many; where there is no driver, pretend to have them. 0: jobs "
            "without GPUs, one at a time.",
        ),
    ] = None,
    *,
    manner: Manner,
) -> None:
    """Schedules jobs onto the GPUs of this machine: database, bus, scheduler and worker, no cloud.

    Jobs share the machine: each gets GPUs of its own (CUDA_VISIBLE_DEVICES), the rest wait in
    line. A job runs in the directory that it was submitted from. State is kept in .zen/node in
    the checkout (ZEN_HOME names another directory). Ctrl-C stops it all, and the jobs with it;
    jobs that had not ended run again at the next start.

    \b
    Examples:
      zen node
      zen node --gpus 4 --detach
      zen node --gpus 0
      zen submit --gpus 1 -- python3 examples/train.py
    """
    from cli.local.node_config import plan_node
    from cli.local.stack import Options

    bring_up(Options(port=manner.port, node=plan_node(gpus), node_gpus=gpus), manner)
