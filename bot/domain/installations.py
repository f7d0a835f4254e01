"""Installations of the bot's app: in one workspace of a platform, or in a whole organization."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

INSTALL_SECONDS = 600.0
"""Seconds from the start of an installation in a browser to the user's return."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The app in one workspace, with the bot's tokens there. `workspace` is the platform's id of the workspace, or of
    the organization if the app serves all of its workspaces.
    """

    platform: str
    workspace: str
    name: str = ""
    """The workspace's name, for display only."""
    organization: str = ""
    """Id of the organization that the workspace belongs to, if any."""
    token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    """Renews the token; empty for a token that never expires."""
    expires_at: float | None = None
    """Epoch seconds; None for a token that never expires."""
    bot_user: str = ""
    installed_by: str = ""
    """Principal of the user."""
    installed_at: float = 0.0
    """Epoch seconds. A renewed token does not change it."""
    removed_at: float | None = None
    """Epoch seconds of the app's removal; the tokens are gone then."""
    version: int = 0
    """Version, which grows with every change."""

    @property
    def is_organization(self) -> bool:
        """True if the app is installed in all workspaces of an organization."""
        return bool(self.organization) and self.workspace == self.organization

    def is_in(self, workspaces: frozenset[str]) -> bool:
        """Return True if the workspace or its organization is among these."""
        return not workspaces.isdisjoint({self.workspace, self.organization})

    @property
    def workspace_key(self) -> str:
        """The workspace with its platform, `slack:T1`."""
        return f"{self.platform}:{self.workspace}"

    @property
    def without_tokens(self) -> Installation:
        """The installation after the app was removed."""
        return replace(self, token="", refresh_token="", expires_at=None)


# -------------------- in a browser


@dataclass(frozen=True, slots=True)
class InstallStarted:
    """The browser goes to `url`, the platform's page, with `browser_secret` in a cookie: the answer counts only with
    it.
    """

    url: str
    browser_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class InstallCompleted:
    """The app is installed, and served from now on. `url` opens the bot on the platform."""

    installation: Installation
    url: str = ""


@dataclass(frozen=True, slots=True)
class InstallRejected:
    """The app may not be installed there."""

    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class InstallFailed:
    """The installation did not work, and may be tried again."""

    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class InstallCancelled:
    """The user did not allow the app."""


@dataclass(frozen=True, slots=True)
class InstallExpired:
    """The answer belongs to no installation of this browser: it was used, is too old, or never began here."""


InstallResult = InstallCompleted | InstallRejected | InstallFailed | InstallCancelled | InstallExpired
