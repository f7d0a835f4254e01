"""`/console installations`, `uninstall`: the workspaces that have installed the app in a browser."""

from __future__ import annotations

from collections.abc import Sequence

from bot.admin.command import CONFIRM, CommandContext, CommandRejected, Verbs, verb
from bot.admin.text_format import code, format_ago, page_of, page_rows
from bot.domain.commands import ActionStyle, Parameter, Reply, ReplyAction, Table
from bot.domain.installations import Installation
from bot.errors import SecretUnavailable
from bot.i18n import _, gettext_lazy

_SLACK = "slack"
"""The only platform with installations."""
_WORKSPACE = Parameter("workspace", "its id as the list shows it", required=True, metavar="ID")
_NO_INSTALLATION = gettext_lazy(
    "No workspace has installed the app. The operator sets `SLACK_CLIENT_ID`, `SLACK_CLIENT_SECRET`, "
    "`SLACK_WORKSPACES` and `PUBLIC_URL`; then `/slack/install` at that address installs it."
)


class InstallationVerbs(Verbs):
    """Verbs about installations. Admins of one workspace see and end its installation alone."""

    @verb("installations", "workspaces that have installed the app", reads=True)
    async def _list(self, request: CommandContext) -> Reply:
        ids = await self._visible(request)
        if not ids:
            return Reply(_NO_INSTALLATION)
        page = [(each, await self._find(each)) for each in page_rows(ids, request.arguments.page)]
        return Reply(
            _("Installations · {count}", count=len(ids)),
            Table(
                ("workspace", "id", "installed", "state"),
                tuple(self._row(workspace, installation) for workspace, installation in page),
            ),
            actions=tuple(
                ReplyAction(
                    _("Uninstall {workspace}", workspace=workspace),
                    ("console", "uninstall", workspace),
                    ActionStyle.DANGER,
                    confirm=workspace,
                )
                for workspace, installation in page
                if installation is not None and installation.removed_at is None
            ),
            page=page_of(request.arguments.page, len(ids), ("console", "installations")),
        )

    @verb("uninstall", "delete the app's tokens of a workspace, and serve it no more", (_WORKSPACE, CONFIRM))
    async def _uninstall(self, request: CommandContext) -> Reply:
        wanted = request.arguments.get("workspace")
        installation = await self._find(wanted) if wanted in await self._visible(request) else None
        if installation is None or installation.removed_at is not None:
            raise CommandRejected(_("No workspace of this id has the app. `/console installations` lists them."))
        if request.arguments.get("confirm") != wanted:
            action = ReplyAction(
                _("Uninstall {workspace}", workspace=wanted),
                ("console", "uninstall", wanted),
                ActionStyle.DANGER,
                confirm=wanted,
            )
            return Reply(_("The bot answers there no more, and its tokens are deleted."), actions=(action,))
        if not await self._dependencies.stores.installations.remove(installation, request.author):
            raise CommandRejected(_("The installation has just changed. Nothing was deleted. Look at the list again."))
        return Reply(
            _(
                "The tokens of {workspace} are deleted, and the bot serves it no more. Slack shows the app there until "
                "an admin removes it in Slack.",
                workspace=code(wanted, ""),
            )
        )

    async def _visible(self, request: CommandContext) -> Sequence[str]:
        """Return the ids of the workspaces whose installations a member may see and end."""
        ids = sorted(await self._dependencies.stores.installations.versions(_SLACK))
        if not self._dependencies.rights.is_confined(request.member):
            return ids
        own = request.conversation.workspace_key
        return [workspace for workspace in ids if f"{_SLACK}:{workspace}" == own]

    async def _find(self, workspace: str) -> Installation | None:
        """Return an installation; None if it is missing or cannot be decrypted."""
        try:
            return await self._dependencies.stores.installations.find(_SLACK, workspace)
        except SecretUnavailable:
            return None

    def _row(self, workspace: str, installation: Installation | None) -> tuple[str, ...]:
        if installation is None:
            return ("", workspace, "", _("unreadable"))
        now = self._dependencies.clock()
        installed = _("{when} by {who}", when=format_ago(installation.installed_at, now), who=installation.installed_by)
        removed_at = installation.removed_at
        state = _("served") if removed_at is None else _("removed {when}", when=format_ago(removed_at, now))
        return (installation.name, workspace, installed, state)
