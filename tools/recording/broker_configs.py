"""Write kwire/broker/broker_config_table.py: the configs of a broker as a real Kafka describes them.

PYTHONPATH=tools python -m recording.broker_configs
"""

from __future__ import annotations

from pathlib import Path

from brokers.cluster import NEWEST, KafkaCluster

from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from tests.broker.client import Client

_FILE = Path(__file__).parents[2] / "kwire" / "broker" / "broker_config_table.py"
_BROKER, _DEFAULT_CONFIG = 4, 5
_HEAD = '''"""The configs of a Kafka {version} broker: type, whether it is read-only or sensitive, and the default.

Written by tools/recording/broker_configs.py from the response of a real broker. Types are those of KIP-569; r is
read-only (it takes a restart), s sensitive; `-` is no default.
"""

# ruff: noqa: E501

from __future__ import annotations

BROKER_CONFIGS = """
'''


def main() -> None:
    with KafkaCluster(NEWEST) as kafka:
        host, port = kafka.bootstrap.split(",")[0].split(":")
        client = Client((host, int(port)))
        resource = DescribeConfigsRequest.Resource(
            resource_type=_BROKER, resource_name=str(kafka.node_ids[0]), configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = client.request(request).results
        client.close()
    lines = []
    for config in sorted(result.configs, key=lambda one: one.name):
        found = [one.value for one in config.synonyms if one.source == _DEFAULT_CONFIG]
        value = found[0] if found else config.value if config.config_source == _DEFAULT_CONFIG else None
        flags = ("r" if config.read_only else "") + ("s" if config.is_sensitive else "")
        shown = "-" if value is None else value.replace("\n", "\\n")
        lines.append(f"{config.name} {config.config_type}{flags} {shown}".rstrip())
    text = _HEAD.format(version=NEWEST) + "\n".join(lines) + '\n"""\n'
    _FILE.write_text(text)


if __name__ == "__main__":
    main()
