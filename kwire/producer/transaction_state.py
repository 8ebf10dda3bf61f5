"""The states of a transactional producer and the moves between them: a table; any other move raises.

    UNINITIALIZED --INIT--> INITIALIZING --INITIALIZED--> READY --BEGIN--> OPEN --COMMIT--> COMMITTING --ENDED--> READY
                                                                             '---ABORT--> ABORTING ----ENDED----'
    OPEN, COMMITTING --FAIL--> ABORTABLE --ABORT--> ABORTING           any --DIE--> FATAL

After an end that leaves the identity in doubt or broken the producer is INITIALIZING once more (RENEW), and then READY.
Kafka's TransactionManager.State has the same, with its initial states in one.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE = auto()
    FATAL = auto()


class Event(Enum):
    INIT = auto()
    INITIALIZED = auto()
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    RENEW = auto()
    FAIL = auto()
    DIE = auto()


MOVES: dict[tuple[State, Event], State] = {
    (State.UNINITIALIZED, Event.INIT): State.INITIALIZING,
    (State.INITIALIZING, Event.INITIALIZED): State.READY,
    (State.READY, Event.BEGIN): State.OPEN,
    (State.OPEN, Event.COMMIT): State.COMMITTING,
    (State.OPEN, Event.ABORT): State.ABORTING,
    (State.OPEN, Event.FAIL): State.ABORTABLE,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.COMMITTING, Event.RENEW): State.INITIALIZING,
    (State.COMMITTING, Event.FAIL): State.ABORTABLE,
    (State.ABORTABLE, Event.ABORT): State.ABORTING,
    (State.ABORTABLE, Event.FAIL): State.ABORTABLE,
    (State.ABORTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.RENEW): State.INITIALIZING,
    (State.ABORTING, Event.FAIL): State.ABORTING,  # what fails is being thrown away already
    **{(state, Event.DIE): State.FATAL for state in State},
    **{(State.FATAL, event): State.FATAL for event in (Event.FAIL, Event.DIE)},
}


def moved(state: State, event: Event) -> State:
    """The next state; RuntimeError for a move that is not in the table, which is a defect of ours."""
    if (state, event) not in MOVES:
        raise RuntimeError(f"a transactional producer that is {state.name} cannot {event.name}")
    return MOVES[state, event]
