"""The verbs of `kwire.Admin`, derived from the class: for tests that must try each."""

from __future__ import annotations

from kwire import Admin
from kwire.admin.noun import Noun

# These are about the client, not the cluster: tests/cluster/test_telemetry.py and tests/live/test_telemetry.py.
OF_THE_CLIENT = {
    "add_metric", "client_instance_id", "close", "collect_metrics", "metrics", "on_cluster_event", "remove_metric",
}  # fmt: skip


def verbs_of(admin: Admin) -> list[str]:
    """Return each verb of each noun, such as "topics.create", and the methods of the client itself that ask brokers."""
    nouns = {name: noun for name, noun in vars(admin).items() if isinstance(noun, Noun)}
    found = [f"{name}.{verb}" for name, noun in nouns.items() for verb in dir(noun) if not verb.startswith("_")]
    own = {name for name in dir(Admin) if not name.startswith("_") and callable(getattr(Admin, name))}
    return sorted([*found, *(own - OF_THE_CLIENT)])
