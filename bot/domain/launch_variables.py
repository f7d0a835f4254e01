"""Environment variables and arguments that decide more than a program's own settings: code, programs, packages,
connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.domain.lazy_pattern import lazy_pattern
from bot.i18n import gettext_lazy

_CODE = gettext_lazy("loads code into programs, or changes how they run it")
_PROGRAMS = gettext_lazy("decides which programs are started, or where")
_PACKAGES = gettext_lazy("decides where packages come from, or what their installation runs")
_SETTINGS = gettext_lazy("decides where programs find their settings")
_CONNECTIONS = gettext_lazy("decides where connections go, or whom they trust")
_POSSIBLE = gettext_lazy("may decide which code, settings or connections programs use")
_VARIABLES = {
    _CODE: lazy_pattern(r"""(?ix)
        (LD|DYLD)_.* | GCONV_PATH | PYT(HON|EST).* | IPYTHON.* | (NODE|DENO|BUN)_(OPTIONS|PATH|REPL.*|V8.*)
        | ELECTRON_RUN_AS_NODE | TS_NODE_.* | (BASH_)?ENV | BASH_(FUNC_|LOADABLES|XTRACE).* | BASHOPTS | FPATH
        | PERL(5.*|LIB) | RUBY(OPT|LIB|SHELL) | LUA_(INIT|PATH|CPATH).* | PHPRC | PHP_INI_SCAN_DIR | GOFLAGS
        | R_(PROFILE|LIBS|ENVIRON|HOME).* | (JAVA_TOOL|JDK_JAVA|_JAVA)_OPTIONS | (JAVA|MAVEN|GRADLE)_(OPTS|ARGS)
        | CLASSPATH | (GTK|QT)_.*(MODULES|PATH) | (DOTNET|COR|CORECLR|COMPLUS|OPENSSL|MONO|UWSGI|MIX|ELIXIR)_.*
        | PROMPT_COMMAND | PS[04] | SHELLOPTS | (JULIA|ERL|GUILE|GHC|P11_KIT|SASL|GST|JUPYTER|CAML|EMACS)_.*
        | GLIBC_TUNABLES | GIO_(EXTRA_MODULES|MODULE_DIR) | TCL_?LIB.* | TK_LIBRARY | OCAML.* | GHCRTS | EMACS.*PATH
        | (G?VIM|EX)INIT | VIMRUNTIME | PSModulePath | (CUDA|NVTX)_INJECTION.* | VK_.*(LAYER|ICD|DRIVER).*
        | (LIBGL|LIBVA|VDPAU|OCL|OPENCL|ALSA|LADSPA|LV2)_.*(DRIVER|ICD|PATH|PLUGIN).* | MPLBACKEND | FLASK_APP"""),
    _PROGRAMS: lazy_pattern(r"""(?ix)
        LESS(OPEN|CLOSE) | MANPAGER | RUST(C|DOC)(_.*)? | RUST(DOC)?FLAGS | GO(TOOLCHAIN|ROOT|PATH|BIN|ENV)
        | JAVA_HOME | .*_EXECUTABLE_PATH | PATH | PATHEXT | (CONFIG_)?SHELL | COMSPEC | PAGER | EDITOR | VISUAL
        | BROWSER | IFS | ZDOTDIR | .*_(PAGER|EDITOR|ASKPASS) | GIT_(?!(AUTHOR|COMMITTER)_).* | (DOCKER|KUBE).*
        | (CC|CXX|CPP|LD|MAKE)(FLAGS)? | [CF]FLAGS | MAKEFILES | (CGO|CMAKE)_.* | CPATH | GCC_EXEC_PREFIX | PKG_CONFIG.*
        | (LIBRARY|COMPILER|\w*INCLUDE)_PATH | VIRTUAL_ENV | CLOUDSDK_PYTHON.* | CHROM(E|IUM)_(PATH|BIN|EXECUTABLE)
        | (PY|RB|ND|NOD|J|GO|PL|TF)ENV_.* | (VOLTA|NVM|FNM|ASDF|MISE|SDKMAN)_.*"""),
    _PACKAGES: lazy_pattern(r"""(?ix)
        (NPM|PNPM|YARN|BUN|COREPACK|PIP|PIPX|UV|POETRY|PDM|CONDA|MAMBA|GEM|BUNDLE|CARGO|COMPOSER|NUGET)_.*
        | (RUSTUP|NIX|HOMEBREW|GRADLE|MAVEN|SBT|CPAN|HEX|PUB)_.* | (CONDA|MAMBA)RC | HF_ENDPOINT
        | .*_DOWNLOAD_(HOST|(BASE_)?URL) | .*_(INDEX_URL|MIRROR(_URL)?) | (?!.*SCHEMA).*_REGISTRY(_URL)?
        | GO(PROXY|SUMDB|NOSUMDB|NOSUMCHECK|PRIVATE|INSECURE|VCS|AUTH|NOPROXY)"""),
    _SETTINGS: lazy_pattern(r"""(?ix)
        HOME(DRIVE|PATH)? | USERPROFILE | ((LOCAL)?APP|PROGRAM)DATA | XDG_.* | CURL_HOME | NETRC | WGETRC
        | AWS_(CONFIG|SHARED_CREDENTIALS)_FILE | DENO_.* | KRB5.* | GNUPGHOME | PG(SERVICE|PASS)FILE | PGSYSCONFDIR
        | CLOUDSDK_CONFIG | ODBC\w*INI | TNS_ADMIN"""),
    _CONNECTIONS: lazy_pattern(r"""(?ix)
        (.*_|NO)PROXY | SSL_CERT_(FILE|DIR) | SSLKEYLOGFILE | NODE_EXTRA_CA_CERTS | HOSTALIASES
        | .*_CA_(FILE|CERTS?|BUNDLE|PATH) | RES_OPTIONS | LOCALDOMAIN | RESOLV_.* | AWS_ENDPOINT_URL.* | GNUTLS_.*
        | .*(SSL|TLS)_.*(VERIFY|INSECURE|REJECT|SKIP).* | .*(VERIFY|INSECURE|SKIP)_(SSL|TLS).*"""),
    # The ends of names that programs use for these, unless the words before them speak of data.
    _POSSIBLE: lazy_pattern(r"""(?ix)
        (?!(.*_)?(ALLOWED|API|BACK(END|UPS?)|BASE|CACHE|CERT|CHROMA|CREDENTIALS?|CSV|DATA\w*|DBS?|DENIED|DEST
        |DOC(UMENT)?S?|DOWNLOADS?|EXPORT|FEATURE|FILES?|FOLDER|HEALTH\w*|HTTP|IMAGES?|INPUT|JSON|KEY|LOG(S|GING)?|MCP
        |MEDIA|MEMORY|MOUNT|NOTES?|OUTPUT|PDF|PROJECTS?|QUERY|REPO|REPORTS?|ROOT|SAVE|SEARCH|SOCKET|SOURCE|SQLITE|SSE
        |STAT(E|IC)|STORAGE|STORE|TE?MP|TOKEN|UPLOADS?|URL|VAULT|WATCH|WIKI|WORK\w*)_(PATH|HOME|OPT\w+|ARGS|FLAGS)$)
        ( ([A-Z\d]+_)+(PATH|HOME) | [A-Z\d]+(LIB|LOAD|PLUGIN|MODULE)PATH | .*_CONF(IG)?(_(FILE|DIR|PATH|HOME))?
        | .*OPT(ION)?S | (.*_)?ARGS | .*\wFLAGS | .*_(CMD|COMMAND) | [A-Z\d]*(?<![SCAIO])RC(_?FILE|_PATH)?
        | (.*_)?(PRELOADS?|PLUGINS?|MODULES?|ADDONS?|EXTENSIONS?)(_(DIRS?|PATHS?|FILE|LIST))?
        | .*_(EXECUTABLE|BIN|BINARY|BINDIR|INTERPRETER|COMPILER|LINKER|WRAPPER|LAUNCHER)
        | [A-Z\d]+INIT | .*_INIT_(FILE|SCRIPT) | (?!.*(ON|AT)_STARTUP).*STARTUP(_FILE|_SCRIPT|ASSEMBLIES)? )"""),
}
_CREDENTIAL = lazy_pattern(r"(?!R_).*_(TOKEN|PASSWORD|SECRET|API_KEY|USER(NAME)?)", re.IGNORECASE)
# `docker -e NAME=value`, `docker -e NAME`, `env NAME=value` and `sh -c 'NAME=value …'` set variables, too.
_SET = lazy_pattern(r"(?i)(?:(?<![\w./-])|(?<=-e))([a-z_]\w*)=|\s(?:-e|--env|setenv|export)[\s=]*([a-z_]\w*)")
_OPTIONS = {
    # The third alternative is an option of an interpreter, before the name of its file.
    _CODE: lazy_pattern(r"""(?x)(?<!\S)(?: --(?:require|import|(?:experimental-)?loader|node-options|preload|call)
        | -(?:javaagent|agent(?:lib|path))
        | (?:\S*[/\\])?(?:python|pypy|node|deno|bun|tsx|ts-node|ruby|perl|php|lua|Rscript|osascript|pwsh|powershell|cmd
            |(?:ba|da|fi|[akcz]|tc)?sh)[\d.]*(?:\.exe)?\s
          (?:-(?:[WXICro]|-(?:import|loader|require))\s\S+\s|-\S*\s)*?
          (?: ((?i:-[a-z]{0,3}[cemr]|--eval|--print|-enc\w*|-com\w*|/[ck])) | (-[cem])\S+ ) )(?![^\s=:/])"""),
    _PROGRAMS: lazy_pattern(r"(?<!\S)(?:(?:\S*/)?env\s(?:-\S*\s)*?(-\w*S|--split-string))(?![^\s=:/])"),
    _PACKAGES: lazy_pattern(r"""(?x)(?<!\S)(?:
        --(?:(?:extra-)?index-url|default-index|find-links|trusted-host|registry|script-shell)
        | --index(?=[=\s]\S+//) )(?![^\s=:/])"""),
    _SETTINGS: lazy_pattern(r"(?<!\S)(?:--(?:env-file|userconfig|globalconfig))(?![^\s=:/])"),
    _CONNECTIONS: lazy_pattern(r"(?<!\S)--(?:(?:https?-?)?proxy|ca-?(?:file|cert)|insecure)(?![^\s=:/])"),
    gettext_lazy(
        "lets a container reach this machine"
    ): lazy_pattern(r"""(?x)(?<!\S)(?: --(?:privileged|cap-add|security-opt|volumes-from)
        | --(?:net(?:work)?|pid|ipc|uts|userns)(?=[=\s]host)
        | (?:-v|--volume|--mount|--device)(?=[=\s]?(?:/:|/dev/|\S*(?:src|source)=/(?:,|\s|$)|\S*docker\.sock))
        )(?![^\s=:/])"""),
}


def variable_effect(name: str, *, network: bool = True) -> str:
    """Return what a variable does beside the settings of its program, as the end of a sentence; empty for others. Names
    count in any case, because some programs ignore it. Without `network`, effects on connections and those that are
    only possible do not count.
    """
    effects = (effect for effect, pattern in _VARIABLES.items() if pattern.fullmatch(name))
    effect = "" if _CREDENTIAL.fullmatch(name) else next(effects, "")
    return effect if network or effect not in (_CONNECTIONS, _POSSIBLE) else ""


def argument_effects(words: Sequence[str]) -> dict[str, str]:
    """Return what variables and options in a command line do beside the settings of its program, by their names."""
    text = "\n".join(words)
    names = (name for match in _SET.finditer(text) for name in match.groups() if name)
    effects = {name: effect for name in names if (effect := variable_effect(name))}
    for effect, pattern in _OPTIONS.items():
        effects |= {match[match.lastindex or 0]: effect for match in pattern.finditer(text)}
    return effects
