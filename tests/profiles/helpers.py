"""Short words for reading a profile and for what was wrong with it."""

import pytest
from llm_client.errors import ConfigError
from llm_client.profiles import built_in, merge, parse


def read(text, **env):
    """Parse YAML in an environment of its own."""
    return parse(text, env=env)


def mistakes(text, **env):
    """Return what is said about YAML that must not be accepted."""
    with pytest.raises(ConfigError) as caught:
        parse(text, env=env)
    return str(caught.value)


def changed(pool=None, profile=None):
    """Return the built-in profile with a constructor's changes."""
    return merge(built_in(env={}), pool=pool, profile=profile)


def refused(pool=None, profile=None):
    """Return what is said about changes that must not be accepted."""
    with pytest.raises(ConfigError) as caught:
        changed(pool, profile)
    return str(caught.value)


def endpoint(keys, **env):
    """Return the only endpoint of a file, from its keys in flow style."""
    return read(f"pool: {{endpoints: [{{base_url: 'http://h:1', {keys}}}]}}", **env).pool.endpoints[0]


def endpoint_mistakes(keys, **env):
    """Return what is said about an endpoint that must not be accepted."""
    return mistakes(f"pool: {{endpoints: [{{base_url: 'http://h:1', {keys}}}]}}", **env)


def default(keys, **env):
    """Return the default profile of a file, from its keys in flow style."""
    return read(f"profiles: {{default: {{{keys}}}}}", **env).profiles["default"]


def default_mistakes(keys, **env):
    """Return what is said about a default profile that must not be accepted."""
    return mistakes(f"profiles: {{default: {{{keys}}}}}", **env)


def pool(keys, **env):
    """Return the pool of a file, from its keys in flow style."""
    return read(f"pool: {{{keys}}}", **env).pool


def pool_mistakes(keys, **env):
    """Return what is said about a pool that must not be accepted."""
    return mistakes(f"pool: {{{keys}}}", **env)
