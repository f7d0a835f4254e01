"""Signing in to servers by OAuth 2.1, the client's side (MCP specification 2026-07-28, basic/authorization).

`sign_ins` lets a person sign the bot in; `bearer` has the token that comes of it, which `holding` knows and `renewal`
keeps good, and `carrying` puts it on requests. `discovery`, `registration`, `authorization` and `tokens` are the steps;
`asking` sends what they ask. The MCP library's pure functions do what the specification says letter by letter; its
provider is not used, because its lock lets one request pass at a time.
"""

from bot.tools.oauth.bearers import Bearers
from bot.tools.oauth.desk import Desk
from bot.tools.oauth.registration import Ourselves
from bot.tools.oauth.sign_ins import OAuthSignIns

__all__ = ["Bearers", "Desk", "OAuthSignIns", "Ourselves"]
