"""The section of a run's report about communication: what was sent, by whom, and which part of it was of use."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from launch.cost import sentences
from launch.finished import FinishedRun
from pflsim.record.cost import Cost, Flow, cost_of
from pflsim.record.database import Reader
from pflsim.record.durations import duration
from pflsim.record.ledger import Ledger, balance
from pflsim.record.pieces import FATES
from pflsim.record.sizes import size
from pflsim.report import traffic
from pflsim.report.page import Folded, Lines, Part, Section, Table, Text

_VISIBLY = 1.02
_MOST_CLIENTS = 30
_MOST_LINKS = 12
_MOST_NAMED = 500


def communication(run: FinishedRun) -> Iterator[Section]:
    """Bytes by kind, link, client and round, and what became of the work."""
    cost = cost_of(run.reader, run.links)
    if not cost.kinds:
        return
    parts: list[Part] = [_flow_table("By kind", "kind", [*cost.kinds, cost.total])]
    if len(cost.fates) > 1:
        parts.append(_fates(cost))
    parts.append(Lines([_capital(line) for line in sentences(cost, is_done=run.is_whole)]))
    over_rounds = traffic.over_rounds(cost.rounds, _kinds(run.reader))
    parts += [over_rounds] if over_rounds and _varies(cost) else []
    sent, received = _ends(cost)
    clients = [flow.name for flow in cost.clients]
    if _differ(cost.clients):
        parts.append(traffic.by_client(sent, received, clients[:_MOST_CLIENTS], len(clients)))
        caption = f"The first {_MOST_LINKS} of {len(cost.links)}." if len(cost.links) > _MOST_LINKS else ""
        parts.append(_flow_table("Busiest links", "link", cost.links[:_MOST_LINKS], caption))
    elif len(clients) > 1 and cost.total.messages:
        parts.append(Text("All clients sent and received alike."))
    parts += _named(balance(run.reader))
    yield Section("Communication", parts, "What the sockets took and gave, counted at both ends.")


def _differ(flows: Sequence[Flow]) -> bool:
    """Whether some sent and received visibly more than others."""
    counts = [flow.charged_bytes for flow in flows]
    return len(counts) > 1 and max(counts) > _VISIBLY * min(counts)


def _flow_table(title: str, what: str, flows: Sequence[Flow], caption: str = "") -> Table:
    resent, lost = any(flow.resent_bytes for flow in flows), any(flow.lost_messages for flow in flows)
    headings = [what, "messages", "payload", "headers", *["resent"] * resent, *["lost messages", "lost bytes"] * lost]
    rows = [
        [
            flow.name,
            f"{flow.messages:,}",
            size(flow.payload_bytes),
            size(flow.header_bytes),
            *[size(flow.resent_bytes)] * resent,
            *[f"{flow.lost_messages:,}", size(flow.lost_bytes)] * lost,
        ]
        for flow in flows
    ]
    return Table(headings, rows, title, caption, strong=len(rows) - 1 if rows[-1][0] == "total" else None)


def _fates(cost: Cost) -> Table:
    headings = ["what became of the work", "pieces", "bytes", "computing"]
    rows = [
        [FATES[fate.name], f"{fate.pieces:,}", size(fate.charged_bytes), duration(fate.computing_ns)]
        for fate in cost.fates
    ]
    return Table(headings, rows, "Work and its use")


def _ends(cost: Cost) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """What each actor sent and received, from the flows of links."""
    sent: defaultdict[str, int] = defaultdict(int)
    received: defaultdict[str, int] = defaultdict(int)
    for flow in cost.links:
        sender, receiver = flow.name.split(" → ")
        sent[sender] += flow.charged_bytes
        received[receiver] += flow.charged_bytes
    return sent, received


def _kinds(reader: Reader) -> dict[str, Counter[int]]:
    """Payload and headers by kind and round."""
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    select = """
        SELECT kind, round, SUM(payload_bytes + header_bytes) FROM sent WHERE channel = 'data' AND round > 0
        GROUP BY kind, round"""
    for kind, round, count in reader.query(select):
        found[kind][round] = count
    return dict(found)


def _varies(cost: Cost) -> bool:
    """Whether a picture over rounds would tell more than that all rounds are alike."""
    counts = [one.charged_bytes for one in cost.rounds]
    return max(counts) > _VISIBLY * min(counts)


def _named(ledger: Ledger) -> list[Part]:
    named = ledger.named()
    if not named:
        return []
    more = f"\n… and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
    text = "\n".join(named[:_MOST_NAMED]) + more
    return [Folded(f"{len(named):,} messages that did not arrive exactly once and whole", text)]


def _capital(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."
