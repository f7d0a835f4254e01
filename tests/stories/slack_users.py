"""People in a Slack workspace and the channel they are in: what they do there, and what they read of the bot."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.slack import Channel, FakeSlack, Message, User


@dataclass
class SlackUsers:
    """Priya asks, Sam administers, #incidents is where they are."""

    slack: FakeSlack
    priya: User
    sam: User
    incidents: Channel

    def ask(self, text: str, thread: str | None = None, user: User | None = None) -> Message:
        """Let Priya, or another user, mention the bot in #incidents."""
        return self.slack.say(user or self.priya, self.incidents, f"{self.slack.bot.mention} {text}", thread_ts=thread)

    def public_texts(self, thread: str, channel: Channel | None = None) -> list[str]:
        """The bot's public messages in a thread."""
        place = channel or self.incidents
        sights = self.slack.what_user_sees(self.priya, place, thread)
        return [sight.words for sight in sights if sight.user == self.slack.bot.id and not sight.ephemeral]

    async def reads(self, thread: str, text: str, channel: Channel | None = None, seconds: float = 60.0) -> Message:
        """Wait until a message of the bot in a thread has this text, and return it."""

        def matching_messages() -> list[Message]:
            posted = [m for m in self.slack.bot_messages(channel or self.incidents, thread) if not m.ephemeral_to]
            return [message for message in posted if text in f"{message.text} {message.blocks}"]

        await self.slack.until(matching_messages, seconds)
        return matching_messages()[-1]

    def whispers(self, user: User) -> list[str]:
        """Private replies to this user in #incidents, as plain text."""
        return [each.text for each in self._private_messages(user)]

    async def hears(self, user: User, *texts: str, seconds: float = 60.0) -> Message:
        """Wait until this person alone is shown all of this at once in #incidents; the message that says it."""

        def matching_messages() -> list[Message]:
            shown = [(each, f"{each.text} {each.blocks}") for each in self._private_messages(user)]
            return [message for message, words in shown if all(text in words for text in texts)]

        await self.slack.until(matching_messages, seconds)
        return matching_messages()[-1]

    def _private_messages(self, user: User) -> list[Message]:
        return [message for message in self.slack.bot_messages(self.incidents) if message.ephemeral_to == user.id]
