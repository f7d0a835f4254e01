"""Environment variables that decide more than a program's own settings: code, programs, packages, connections."""

from __future__ import annotations

import re

from bot.i18n import gettext_lazy

_EFFECTS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.VERBOSE), effect)
    for pattern, effect in (
        (
            r"""(LD|DYLD)_.* | GCONV_PATH | PYTHON.* | (NODE|DENO|BUN)_(OPTIONS|PATH|REPL.*) | ELECTRON_RUN_AS_NODE
            | (BASH_)?ENV | BASH_FUNC_.* | PERL(5.*|LIB) | RUBY(OPT|LIB|SHELL) | LUA_(INIT|PATH|CPATH).* | PHPRC
            | PHP_INI_SCAN_DIR | GOFLAGS | R_(PROFILE|LIBS|ENVIRON).* | (JAVA_TOOL|JDK_JAVA|_JAVA)_OPTIONS
            | (JAVA|MAVEN|GRADLE)_OPTS | CLASSPATH | (GTK|QT)_.*(MODULES|PATH) | (DOTNET|COR|CORECLR|OPENSSL)_.*
            | PROMPT_COMMAND | PS[04] | SHELLOPTS | .*_(OPTS|OPTIONS) | (JULIA|ERL|GUILE)_.* | GLIBC_TUNABLES
            | GIO_EXTRA_MODULES""",
            gettext_lazy("loads code into programs, or changes how they run it"),
        ),
        (
            r"""LESSOPEN | LESSCLOSE | MANPAGER | RUSTC(_WORKSPACE)?_WRAPPER | GOTOOLCHAIN | JAVA_HOME
            | .*_EXECUTABLE_PATH | PATH | PATHEXT | SHELL | COMSPEC | PAGER | EDITOR | VISUAL | BROWSER | IFS | ZDOTDIR
            | .*_(PAGER|EDITOR|ASKPASS) | GIT_(?!(AUTHOR|COMMITTER)_).* | (CC|CXX|LD|MAKE)(FLAGS)? | (DOCKER|KUBE).*""",
            gettext_lazy("decides which programs are started, or where"),
        ),
        (
            r"""(NPM|PNPM|YARN|BUN|COREPACK|PIP|PIPX|UV|POETRY|PDM|CONDA|GEM|BUNDLE|CARGO|COMPOSER|NUGET)_.*
            | HF_ENDPOINT | .*_DOWNLOAD_HOST | .*_(INDEX|REGISTRY|MIRROR)(_URL)?
            | GO(PROXY|SUMDB|NOSUMDB|NOSUMCHECK|PRIVATE|INSECURE)""",
            gettext_lazy("decides where packages come from, or what their installation runs"),
        ),
        (
            r"HOME | USERPROFILE | (LOCAL)?APPDATA | XDG_.* | AWS_CONFIG_FILE",
            gettext_lazy("decides where programs find their settings"),
        ),
        (
            r"""(.*_|NO)PROXY | SSL_CERT_(FILE|DIR) | SSLKEYLOGFILE | NODE_(EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)
            | (REQUESTS|CURL)_CA_BUNDLE | .*_CA_(FILE|CERTS?|BUNDLE) | HOSTALIASES | RES_OPTIONS | LOCALDOMAIN""",
            gettext_lazy("decides where connections go, or whom they trust"),
        ),
    )
)
_CREDENTIAL = re.compile(r"(?!R_).*_(TOKEN|PASSWORD|USER(NAME)?)", re.IGNORECASE)


def variable_effect(name: str, *, network: bool = True) -> str:
    """Return what a variable does beside the settings of its program, as the end of a sentence; empty for others. Names
    count in any case, because some programs ignore it. Without `network`, effects on connections do not count.
    """
    rows = _EFFECTS if network else _EFFECTS[:-1]
    effects = (effect for pattern, effect in rows if pattern.fullmatch(name))
    return "" if _CREDENTIAL.fullmatch(name) else next(effects, "")
