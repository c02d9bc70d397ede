"""Every command of `zen`: its name, where it lives, and its line in `zen --help`.

A command's module is imported when the command is called: `zen --help` needs none of them.
"""

from __future__ import annotations

from typing import NamedTuple

from cli.paths import WITH_TESTS

PASS_ON = {"allow_interspersed_args": False}
"""Everything after the first word of the job's command is the command's, also its options."""
TO_PYTEST = {**PASS_ON, "allow_extra_args": True, "ignore_unknown_options": True}


class Entry(NamedTuple):
    """One command, or a group of commands."""

    where: str
    """module:name; the name is that of a function, or of a Typer for a group."""
    line: str = ""
    """What `zen --help` says; empty: the command is not listed there."""
    settings: dict[str, bool] | None = None
    """How its words are read."""

    @property
    def hidden(self) -> bool:
        return not self.line


COMMANDS: dict[str, Entry] = {
    "up": Entry("cli.commands.up:up", "Starts everything on this machine."),
    "down": Entry("cli.commands.up:down", "Stops what zen up started here."),
    "node": Entry("cli.commands.node:node", "Schedules jobs onto the GPUs of this machine."),
    "status": Entry("cli.commands.status:status", "Processes, API, leader, jobs, VMs."),
    "submit": Entry("cli.commands.submit:submit", "Submits a job.", PASS_ON),
    "run": Entry("cli.commands.submit:run", "Submits a job and follows its log.", PASS_ON),
    "jobs": Entry("cli.commands.jobs:jobs", "The jobs: where each one is and why it waits."),
    "show": Entry("cli.commands.show:show", "One job: where it is, its timeline, its cost."),
    "logs": Entry("cli.commands.jobs:logs", "The job's own output."),
    "stop": Entry("cli.commands.jobs:stop", "Stops jobs: SIGTERM, their grace time, SIGKILL."),
    "wait": Entry("cli.commands.wait:wait", "Waits until jobs have ended."),
    "resubmit": Entry("cli.commands.resubmit:resubmit", "Submits a job again, as a new one."),
    "diff": Entry("cli.commands.diff:diff", "What differs between two jobs."),
    "job": Entry("cli.commands.job_files:app", "Job files: begin one, check one, the schema."),
    "artifacts": Entry("cli.commands.artifacts:artifacts", "The files that a job stored."),
    "fetch": Entry("cli.commands.artifacts:fetch", "Brings stored files here."),
    "cp": Entry("cli.commands.copy:copy", "Copies stored files of a job here: JOB:PATH TO."),
    "defaults": Entry(
        "cli.commands.defaults:app", "Tenant, user and cluster of jobs that name none."
    ),
    # Words of other command lines (cli/aliases.py); also here, so that habits do no harm.
    "list": Entry("cli.aliases:list_jobs"),
    "cancel": Entry("cli.commands.jobs:stop"),
    "get": Entry("cli.commands.show:show"),
    "create-tenant": Entry("cli.aliases:create_tenant"),
    "clusters": Entry(
        "cli.commands.fleet:clusters", "Clusters × regions: target, booting, idle, busy."
    ),
    "vms": Entry("cli.commands.fleet:vms", "The VMs: where, since when, what runs on them."),
    "capacity": Entry(
        "cli.commands.capacity:capacity", "What each region has delivered and refused."
    ),
    "alerts": Entry("cli.commands.fleet:alerts", "What a human should know."),
    "cost": Entry("cli.commands.cost:cost", "What VMs cost: useful work, and what was wasted."),
    "demo": Entry("cli.commands.demo:demo", "Shows it all in a minute."),
    "chaos": Entry(
        "cli.commands.chaos:chaos", "Kills and freezes parts of a stack of its own, and judges."
    ),
    "simulate": Entry("cli.commands.simulate:simulate", "Runs the whole service in virtual time."),
    "whatif": Entry(
        "cli.commands.whatif:whatif", "What if I added a region, raised a limit, used spot?"
    ),
    "whoami": Entry(
        "cli.commands.access:whoami", "Who the API takes you for, and what you may do."
    ),
    "login": Entry("cli.commands.login:login", "Signs you in at the API's issuer."),
    "logout": Entry("cli.commands.login:logout", "Forgets who you are at the API."),
    "proxy": Entry("cli.commands.proxy:proxy", "Passes requests on to the API with a key."),
    "serve": Entry("cli.commands.operate:serve", "Runs one scheduler in the foreground."),
    "docs": Entry("cli.reference.command:docs", "Writes docs/reference/ from the code."),
    "check": Entry("cli.commands.checks:check", "Format, lint, import layers, types, fast tests."),
    "test": Entry("cli.commands.checks:run_tests", "Runs the tests, slow ones too.", TO_PYTEST),
    "tenants": Entry(
        "cli.commands.tenants:app", "Who shares the GPUs: weights, quotas, priorities."
    ),
    "keys": Entry(
        "cli.commands.access:keys_app", "API keys: list (also alone), create, rotate, revoke."
    ),
    "grants": Entry(
        "cli.commands.access:grants_app",
        "Roles of keys and people: list (also alone), add, remove.",
    ),
    "audit": Entry(
        "cli.commands.access:audit_app", "The audit log: list (also alone), verify, export."
    ),
    "sessions": Entry(
        "cli.commands.sessions:sessions_app", "Sessions of browsers: list (also alone), revoke."
    ),
    "secrets": Entry("cli.commands.secrets:app", "Secrets that jobs use: list (also alone), set."),
    "workers": Entry(
        "cli.commands.workers:app", "How the scheduler and its workers know each other: keys."
    ),
    "dead-letters": Entry(
        "cli.commands.dead_letters:app", "Messages that could not be used, with the reason."
    ),
    "sim": Entry("cli.commands.sim:app", "The pretend cloud: see it, set faults, clear them."),
    "config": Entry(
        "cli.commands.config_versions:app",
        "The configuration: check, show, compare, history, roll back.",
    ),
    "infra": Entry("cli.commands.operate:infra_app", "What must exist on Google Cloud."),
    "db": Entry("cli.commands.operate:db_app", "The database's schema."),
    "clients": Entry(
        "tests.clients.programs.verify:app", "Clients of other systems: run the real programs."
    ),
}
if not WITH_TESTS:
    for _name in ("check", "test", "clients"):
        del COMMANDS[_name]
