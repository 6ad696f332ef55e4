"""Text as it arrives, and the whole answer at the end."""

import asyncio

from llm_client import AsyncClient, StreamInterruptedError


async def main() -> None:
    async with AsyncClient() as client:
        call = client.chat.completions.create(
            model="reference",
            messages=[{"role": "user", "content": "Count to ten."}],
            stream=True,
            stream_options={"include_usage": True},
        )
        async with await call as stream:
            try:
                async for piece in stream.text_stream:
                    print(piece, end="", flush=True)
            except StreamInterruptedError as error:
                print(f"\nbroke off after {len(error.partial)} characters")
                return
            done = await stream.get_final_completion()
        print()
        print(f"{done.choices[0].finish_reason}, {done.usage.total_tokens if done.usage else '?'} tokens")


asyncio.run(main())
