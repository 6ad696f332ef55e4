"""The classes that `openai_calls.json` names, for the recorder and the test alike."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass


class Mood(StrEnum):
    """How it felt."""

    GOOD = "good"
    BAD = "bad"


class Place(BaseModel):
    """Somewhere on a map."""

    name: str
    latitude: float | None = None


class Guest(BaseModel):
    name: str
    friends: list[Guest] = []


class CalendarEvent(BaseModel):
    """Something that happens."""

    name: str = Field(description="what it is called")
    date: str
    participants: list[str]
    place: Place = Field(description="where it happens")
    fallback_place: Place | None = None
    mood: Mood = Field(default=Mood.GOOD, description="how it feels")
    guests: list[Guest] = []
    tags: dict[str, int] = {}
    choice: int | str = 3


@dataclass
class Point:
    x: int
    y: int = 0
