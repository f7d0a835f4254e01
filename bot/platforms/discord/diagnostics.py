"""Checks of the Discord setup for `countersign doctor`.

Nothing is posted, and the gateway is not connected, because Discord allows a thousand new sessions a day.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlencode

from bot.domain.conversations import ConversationKey
from bot.domain.health import Check, CheckStatus
from bot.errors import CountersignError, DeliveryFailed
from bot.platforms.discord.channels import fetch_channel
from bot.platforms.discord.rest import Identity, Rest
from bot.platforms.discord.users import UserDirectory

# -------------------- permissions
# Bits as in docs.discord.com, "Permissions".

SCOPES = ("bot", "applications.commands")
AUTHORIZE = "https://discord.com/oauth2/authorize"
ADMINISTRATOR = 1 << 3


@dataclass(frozen=True, slots=True)
class Permission:
    """One permission: its bit, its name in Discord's clients, and its purpose, which completes "without it …". Without
    a `needed` one the bot cannot answer; the others have fallbacks.
    """

    bit: int
    name: str
    without: str
    needed: bool = False

    @property
    def value(self) -> int:
        """Permission as a number."""
        return 1 << self.bit


PERMISSIONS = (
    Permission(10, "View Channels", "the bot sees no channel", needed=True),
    Permission(11, "Send Messages", "the bot cannot answer", needed=True),
    Permission(38, "Send Messages in Threads", "the bot cannot answer in threads", needed=True),
    Permission(35, "Create Public Threads", "the bot answers in the channel itself instead of opening a thread"),
    Permission(16, "Read Message History", "the bot does not see earlier messages, and cannot reply to a message"),
    Permission(15, "Attach Files", "long answers, and images and files from tools, are not shown"),
    Permission(14, "Embed Links", "some clients show its links as plain text"),
)


def permission_integer() -> int:
    """Return the permissions that the bot uses, as the number in an invite link."""
    return sum(permission.value for permission in PERMISSIONS)


def missing(granted: int) -> tuple[Permission, ...]:
    """Return the permissions that a set lacks."""
    return (
        ()
        if granted & ADMINISTRATOR
        else tuple(permission for permission in PERMISSIONS if not granted & permission.value)
    )


def invite_link(app: str) -> str:
    """Return the invite link of the bot. `app` is the application's id."""
    query = {"client_id": app, "scope": " ".join(SCOPES), "permissions": str(permission_integer())}
    return f"{AUTHORIZE}?{urlencode(query)}"


_TO_POST = PERMISSIONS[:2]
OPS_CHANNEL = "ops channel"
COMMANDS_CHECK = "commands"
COMMANDS = ("approvals", "conversations", "mcp", "profile", "usage")
NAMED = 10
"""Servers that are looked at one by one; the rest is counted."""
READS_ALL = "It is switched on: conversations go on in threads without a mention."
READS_SOME = (
    "It is switched off: mentions, direct messages and replies with a ping work; in threads people have to mention the "
    "bot each time."
)
PRIVATE = "Only the owner of the application can invite the bot."
NAMED_SERVERS = "Every Discord user can invite the bot; it answers only on the servers that DISCORD_SERVERS names."
PUBLIC = "Every Discord user can invite the bot to a server of theirs, where it would answer with your tools."
MAKE_IT_PRIVATE = "switch off Public Bot on the Bot page of the application, or name your servers in DISCORD_SERVERS"
ELSEWHERE = "Discord posts presses and commands to {} instead of handing them to the bot."
CLEAR_IT = "clear Interactions Endpoint URL on the General Information page of the application"
SWITCH_IT_ON = "switch on Message Content Intent on the Bot page of the application, if you want that"


async def diagnose(rest: Rest, people: UserDirectory) -> AsyncGenerator[Check, None]:
    """Check the bot's token, application, guilds, permissions and commands."""
    began = monotonic()
    try:
        identity = await rest.identity()
    except CountersignError as error:
        yield Check("token", CheckStatus.BROKEN, error.detailed_cause, error.fix)
        return
    said = f"It is {identity.name}, application {identity.app}."
    yield Check("token", CheckStatus.WELL, said, seconds=monotonic() - began)
    yield _of_content(identity)
    yield _of_invitations(identity, people)
    if identity.endpoint:
        yield Check("interactions", CheckStatus.BROKEN, ELSEWHERE.format(identity.endpoint), CLEAR_IT)
    try:
        servers = await people.servers()
        yield _of_servers(servers, people, identity)
        for server in servers[:NAMED]:
            yield await _of_server(server, rest, people, identity)
        if len(servers) > NAMED:
            yield Check("servers", CheckStatus.SKIPPED, f"{len(servers) - NAMED} more were not looked at.")
        yield await check_commands(rest, identity)
    except DeliveryFailed as error:
        yield Check("servers", CheckStatus.BROKEN, error.detailed_cause, error.fix)


async def diagnose_channel(
    rest: Rest, people: UserDirectory, channel: ConversationKey, named_by: str = "OPS_CHANNEL"
) -> Check:
    """Check that the bot may post in a channel, which `named_by` names. Nothing is posted."""
    began = monotonic()
    try:
        identity, place = await rest.identity(), await fetch_channel(rest, channel.channel)
        if place is None or not place.server or (channel.workspace and channel.workspace != place.server):
            where = f"of server {channel.workspace}" if channel.workspace else "of a server"
            return Check(OPS_CHANNEL, CheckStatus.BROKEN, f"It is no channel {where}.", f"correct {named_by}")
        guild = await people.server(place.server)
        async with rest.request("look at the bot's own rights"):
            me = await guild.fetch_member(int(identity.user))
            rights = (await guild.fetch_channel(int(channel.channel))).permissions_for(me)
    except DeliveryFailed as error:
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, error.cause, error.fix or f"correct {named_by}")
    lacking = [permission.name for permission in _TO_POST if not rights.value & permission.value]
    if lacking:
        names = " and ".join(lacking)
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, f"The bot lacks {names} in it.", f"give its role {names} there")
    return Check(OPS_CHANNEL, CheckStatus.WELL, "The bot may post in it.", seconds=monotonic() - began)


def _of_content(identity: Identity) -> Check:
    if identity.reads_all:
        return Check("message content", CheckStatus.WELL, READS_ALL)
    return Check("message content", CheckStatus.DOUBTFUL, READS_SOME, SWITCH_IT_ON)


def _of_invitations(identity: Identity, people: UserDirectory) -> Check:
    if not identity.public:
        return Check("invitations", CheckStatus.WELL, PRIVATE)
    if people.wanted:
        return Check("invitations", CheckStatus.WELL, NAMED_SERVERS)
    return Check("invitations", CheckStatus.DOUBTFUL, PUBLIC, MAKE_IT_PRIVATE)


def _of_servers(servers: tuple[str, ...], people: UserDirectory, identity: Identity) -> Check:
    lacking = sorted(people.wanted - set(servers), key=int)
    if lacking or not servers:
        named = f"The bot is not in {', '.join(lacking)}." if lacking else "The bot is in no server."
        return Check("servers", CheckStatus.BROKEN, named, f"invite it: {invite_link(identity.app)}")
    return Check("servers", CheckStatus.WELL, "1 is served." if len(servers) == 1 else f"{len(servers)} are served.")


async def _of_server(server: str, rest: Rest, people: UserDirectory, identity: Identity) -> Check:
    """Check the bot's permissions in a guild; single channels may differ."""
    try:
        guild = await people.server(server)
        async with rest.request("look at the bot's own rights"):
            me = await guild.fetch_member(int(identity.user))
    except DeliveryFailed as error:
        return Check(f"server {server}", CheckStatus.BROKEN, error.detailed_cause, error.fix)
    lacking = missing(me.guild_permissions.value)
    if not lacking:
        return Check(f"server {guild.name}", CheckStatus.WELL, "The bot may do there what it needs.")
    told = "; ".join(f"{permission.name}: without it {permission.without}" for permission in lacking)
    status = CheckStatus.BROKEN if any(permission.needed for permission in lacking) else CheckStatus.DOUBTFUL
    fix = f"give its role these permissions, or invite it again: {invite_link(identity.app)}"
    return Check(f"server {guild.name}", status, f"It lacks permissions. {told}.", fix)


async def check_commands(rest: Rest, identity: Identity) -> Check:
    """Check that the commands are registered. Raises DeliveryFailed."""
    async with rest.request("look at the commands") as client:
        names = {command["name"] for command in await client.http.get_global_commands(int(identity.app))}
    lacking = [name for name in COMMANDS if name not in names]
    if lacking:
        told = f"Discord does not know {', '.join(f'/{name}' for name in lacking)}."
        return Check(COMMANDS_CHECK, CheckStatus.DOUBTFUL, told, "start the bot once: it registers them")
    return Check(COMMANDS_CHECK, CheckStatus.WELL, "They are registered.")
