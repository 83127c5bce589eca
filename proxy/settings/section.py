"""The base of all sections of a configuration, and a check that several of them share."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, SecretStr, ValidatorFunctionWrapHandler, field_validator


class Section(BaseModel):
    """A part of a configuration. Its numbers are finite, and are not written as ``true`` or ``false``."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_switch(cls, given: object, read: ValidatorFunctionWrapHandler) -> object:
        """YAML reads ``yes`` and ``on`` as true, which pydantic takes for the number 1."""
        value = read(given)
        if _is_counted(given, value):
            raise ValueError("must be a number, not true or false")
        return value


def _is_counted(given: object, value: object) -> bool:
    """Whether a switch was taken for a number, there or among the values of a mapping."""
    if isinstance(given, dict) and isinstance(value, dict):
        return any(_is_counted(item, value.get(name)) for name, item in given.items())
    return isinstance(given, bool) and isinstance(value, int | float) and not isinstance(value, bool)


def filled(instead: str) -> Callable[[SecretStr], SecretStr]:
    """A check that a key is not empty. ``instead`` says what happens without a key."""

    def check(key: SecretStr) -> SecretStr:
        if not key.get_secret_value().strip():
            raise ValueError(f"is empty; remove it to {instead}, or set one")
        return key

    return check
