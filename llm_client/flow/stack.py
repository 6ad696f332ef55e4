"""The order in which a call meets the layers, outermost first: fallback, retry, admission, attempt.

The deadline is no layer of its own: it is an instant, carried by the call and respected by each wait.
"""

from __future__ import annotations

from llm_client.errors import LLMClientError
from llm_client.events import CallStarted
from llm_client.flow.effects import Flow
from llm_client.flow.fallback import chain, with_fallback
from llm_client.flow.retry import with_retry
from llm_client.flow.run import Reply, Run
from llm_client.model import Kind


def stack(run: Run) -> Flow[Reply]:
    """Carry one call out.

    Raises:
        LLMClientError: see the tree in `llm_client.errors`.
    """
    run.started = run.now()
    if run.services.listening:
        run.emit(
            CallStarted(
                at=run.started,
                call=run.call.id,
                profile=run.plan.name,
                route=run.call.route,
                model=run.call.model,
                priority=run.call.priority,
            )
        )
    outcome: str = Kind.CANCELLED
    try:
        steps = chain(run)
        reply = yield from (with_fallback(run, steps, with_retry) if steps else with_retry(run))
        outcome = "fallback" if reply.run.fallback else "ok"
        if reply.delivery is not None:
            outcome = ""  # the delivery says how it ends
    except LLMClientError as error:
        outcome = error.kind
        error.attempts = tuple(run.records) or error.attempts
        raise
    else:
        return reply
    finally:
        if outcome:
            run.finish(outcome)
