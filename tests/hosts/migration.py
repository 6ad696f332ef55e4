"""A script for openai-python: chat, stream, tools, five kinds of trouble. Run with `llm_client` or `openai`.

Everything below the two imports is the same for both; it prints what it saw, and both must print the same.
"""

import sys

if sys.argv[1] == "openai":
    import openai as sdk
    from openai import OpenAI as Client
else:
    import llm_client as sdk
    from llm_client import OpenAI as Client

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def ask(client: Client, prompt: str, **options: object) -> None:
    """Make one call and print the answer or the kind of trouble."""
    try:
        done = client.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}], **options)
    except sdk.RateLimitError as error:
        print(prompt, "RateLimitError", error.status_code, error.code, error.request_id)
    except sdk.AuthenticationError as error:
        print(prompt, "AuthenticationError", error.status_code, error.code)
    except sdk.NotFoundError as error:
        print(prompt, "NotFoundError", error.status_code, error.code)
    except sdk.BadRequestError as error:
        print(prompt, "BadRequestError", error.status_code, error.code, error.param)
    except sdk.InternalServerError as error:
        print(prompt, "InternalServerError", error.status_code, error.code)
    except sdk.APIConnectionError as error:
        print(prompt, "APIConnectionError", isinstance(error, sdk.APIError), isinstance(error, sdk.OpenAIError))
    else:
        choice = done.choices[0]
        print(prompt, choice.message.role, choice.message.content, choice.finish_reason, done.usage.total_tokens)


def main() -> None:
    """Run the script against the server named on the command line."""
    client = Client(base_url=sys.argv[2], api_key="none", max_retries=0, timeout=10.0)
    ask(client, "hello")
    ask(client, "hello again", temperature=0.1, max_tokens=5, seed=7, stop=["x"])
    ask(client, "with tools", tools=TOOLS, tool_choice="auto")
    stream = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "stream"}], stream=True, stream_options={"include_usage": True}
    )
    print("stream", "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices))
    for status in (429, 401, 404, 400, 500):
        ask(client, f"say {status}")
    ask(Client(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0, timeout=2.0), "nobody there")
    print("models", [model.id for model in client.models.list()])


main()
