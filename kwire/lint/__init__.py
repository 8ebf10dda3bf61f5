"""What captured traffic tells: statistics of exchanges, and rules about what clients and brokers do wrong.

    report = lint_file("traffic.pcapng")
    for finding in report.at_least(Level.WARN):
        print(finding.rule.id, finding.rule.name, finding.subject, finding.text, finding.packets)

Rules see each exchange once, in its order; what they remember has bounds. Some look back at the end.

    run          which rules run, and the order of their findings; which finding explains which
    rule         a rule, a finding, and what rules count with
    world        what all rules know: clients, versions, leaders, connections
    tcp_facts    how TCP connections begin and end
    produce_rules, consume_rules, group_rules, network_rules, other_rules   the 58 rules
    statistics   counts by API, client, topic, connection or broker
    by_packet    findings by the exchange that shows them
    histogram    quantiles in little memory
    contents     topics, partitions and batches of an exchange, the same for all versions

Imports: capture, consumer, protocol, records.
"""

from kwire.lint.rule import Finding, Level, Rule
from kwire.lint.run import RULES, Linter, LintReport, Settings, lint_capture, lint_file
from kwire.lint.statistics import Statistics, spans

__all__ = [
    "RULES",
    "Finding",
    "Level",
    "LintReport",
    "Linter",
    "Rule",
    "Settings",
    "Statistics",
    "lint_capture",
    "lint_file",
    "spans",
]
