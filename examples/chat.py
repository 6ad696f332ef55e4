"""One answer, and how it came about."""

from llm_client import Client

with Client() as client:  # OPENAI_BASE_URL and OPENAI_API_KEY say where
    done = client.chat.completions.create(
        model="reference",
        messages=[{"role": "user", "content": "Say hello."}],
        priority="high",
        deadline=30,
    )
    print(done.text)
    print(f"from {done.meta.endpoint} after {len(done.meta.attempts)} attempt(s) in {done.meta.elapsed:.2f} s")
