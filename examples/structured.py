"""A class in, an instance out; and what to do when the model's text is none."""

from llm_client import Client, OutputParseError
from pydantic import BaseModel


class City(BaseModel):
    """What the answer has to look like."""

    name: str
    inhabitants: int


with Client() as client:
    try:
        done = client.chat.completions.create(
            model="reference",
            messages=[{"role": "user", "content": "Which city is the largest in France?"}],
            response_format=City,
        )
        print(done.parsed)
    except OutputParseError as error:
        # The reference server knows no schemas, so this is what it leads to.
        print(f"no City: {len(error.raw_content)} characters of something else, finish_reason {error.finish_reason}")
