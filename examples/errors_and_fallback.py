"""What a call may end with other than an answer, and how to have something to show all the same."""

import socket

from llm_client import APIStatusError, Client, ConnectError, LLMClientError, RejectedError

messages = [{"role": "user", "content": "Say hello."}]

with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
nobody = f"http://127.0.0.1:{port}/v1"  # nobody listens there any more

with Client(base_url=nobody, max_retries=0) as client:
    try:
        client.chat.completions.create(model="reference", messages=messages, deadline=2)
    except RejectedError as error:
        print(f"decided here, nothing was sent: {error.kind}, again in {error.retry_after} s")
    except ConnectError as error:
        print(f"certainly not sent: {error.kind}")
    except APIStatusError as error:
        print(f"the server said no: {error.status_code} {error.code}, request {error.request_id}")
    except LLMClientError as error:
        print(f"{type(error).__name__}: {error.kind} after {len(error.attempts)} attempt(s)")

    done = client.chat.completions.create(
        model="reference", messages=messages, deadline=2, fallback="Sorry, try again in a minute."
    )
    print(f"{done.text} (fallback: {done.meta.fallback})")
