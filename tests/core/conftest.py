"""Properties of decisions are about what they answer, not about how long a busy machine takes to ask."""

from hypothesis import settings

settings.register_profile("core", deadline=None)
settings.load_profile("core")
