"""A proxy between Kafka clients and brokers that shows, records and disturbs what they say. `kwire tap` is its face.

    from kwire.tap import Tap

    with Tap("broker:9092", record="traffic.pcapng", on_exchange=lambda one: print(one.api_name)) as tap:
        ...  # clients that use tap.address as their bootstrap

The file is a capture that `kwire decode`, `kwire.capture` and Wireshark read.

    tap.py        `Tap`: the options
    background.py the thread of a tap or a playback, and its end
    proxy.py      connections, and the frames that pass
    addresses.py  broker addresses in responses
    recorder.py   frames to files and to exchanges
    chaos.py      rules that disturb the traffic
    replay.py     the requests of a capture, sent to a broker again
    live_values.py  ids and epochs of the capture, and those of now
    playback.py   the responses of a capture, served to clients
    playback_log.py  the records of a capture by offset

Imports: capture, cluster, net, session, protocol, records, wire.
"""

from __future__ import annotations

from kwire.tap.chaos import Rule, load_rules
from kwire.tap.playback import Answer, Playback
from kwire.tap.replay import WRITES, Replayed, replay
from kwire.tap.tap import Tap

__all__ = ["WRITES", "Answer", "Playback", "Replayed", "Rule", "Tap", "load_rules", "replay"]
