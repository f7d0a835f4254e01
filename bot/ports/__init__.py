"""The seams between the parts: what the engine asks of the world, and what the world may ask of the engine.

Values in, values out. Whoever implements a port translates its vendor's errors into `bot.errors`.
"""

from __future__ import annotations

from bot.ports.language_models import LanguageModel, LanguageModels
from bot.ports.people import Commands, FrontDoor, Listener, Surface
from bot.ports.sign_ins import AuthorizationResponse, KeptSignIn, SignedIn, SignIns
from bot.ports.tools import CallContext, ServerAdmin, Toolbox
from bot.ports.turn_log import TurnLog

__all__ = [
    "AuthorizationResponse",
    "CallContext",
    "Commands",
    "FrontDoor",
    "KeptSignIn",
    "LanguageModel",
    "LanguageModels",
    "Listener",
    "ServerAdmin",
    "SignIns",
    "SignedIn",
    "Surface",
    "Toolbox",
    "TurnLog",
]
