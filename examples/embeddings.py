"""Many texts: sent in as many requests as it takes, given back in order."""

from llm_client import Client

texts = [f"Sentence number {number}." for number in range(100)]

with Client() as client:
    found = client.embeddings.create(model="reference", input=texts, priority="low")
    print(f"{len(found.data)} vectors of {len(found.data[0].embedding)} numbers")
