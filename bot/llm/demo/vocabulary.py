"""English and Japanese words that the demo model knows: verbs, subjects, days. No tool or server is known here."""

from __future__ import annotations

import re

from bot.domain.tokenizer import stem


def stems(text: str) -> frozenset[str]:
    """Return the stems of a list of words."""
    return frozenset(map(stem, text.split()))


_ACTIONS = {
    "add": """add save jot remember memorise memorize create write record store make put insert append log register
        keep book schedule open remind take 追加 保存 登録 作成 覚え 書い メモし""",
    "list": "list show all what which display enumerate see view everything 一覧 表示 見せ",
    "search": "search find look lookup query seek locate where filter about mention contain 検索 探し 探す",
    "delete": "delete remove erase forget drop discard destroy purge clear 削除 消し",
    "get": "get fetch read open retrieve show give tell say check see view load what how when 取得 教え",
    "update": "update edit change modify rename set replace correct adjust move 更新 変更",
    "send": "send post email mail message notify publish share 送信 送っ",
    "start": "start run launch begin execute trigger enable activate",
    "stop": "stop end halt disable kill close pause cancel abort",
    "finish": "complete finish done resolve tick",
    "convert": "convert translate transform turn",
    "compute": "calculate compute solve evaluate",
}
"""Actions, and the verbs that ask for them. A verb may ask for several."""
READING = frozenset({"list", "search", "get", "convert", "compute"})
"""Actions that change nothing."""
VERBS = {
    verb: frozenset(action for action, verbs in _ACTIONS.items() if verb in stems(verbs))
    for verb in stems(" ".join(_ACTIONS.values()))
}
"""Stem of a verb to the actions that it asks for."""
VAGUE = stems(
    """make put keep show all what which where when how see view give tell get check open run set change start stop end
    turn look move message close write everything about take say 教え 表示"""
)
"""Verbs so common that alone they say nothing about which tool is meant."""
_RELATED = {
    "umbrella raincoat rain rainy wet 傘 雨": "rain weather",
    "temperature hot cold warm cool jacket coat sweater 気温 暑い 寒い": "temperature weather",
    "sunny cloudy snow snowy wind windy storm sunglasses wear outside 天気 날씨 天气 雪": "weather",
    "予報": "forecast", "memo reminder todo メモ メモし ノート 메모 笔记": "note", "予定": "event", "会議": "meeting",
    "課題": "issue", "請求": "invoice", "注文": "order", "顧客": "customer", "照明 電気": "light", "時間 時刻": "time",
    "翻訳": "translate", "写真": "photo", "handbook manual docs doc guide wiki faq 文書": "document",
}  # fmt: skip
RELATED = {word: stems(related) for listed, related in _RELATED.items() for word in stems(listed)}
"""Stem of an everyday word to the stems of words by which tools about its subject are described."""

_PHRASES = (
    (r"^\W*(?:(?:please|pls|plz|and|also|or|but|so|then|how about|what about|same (?:for|in)|now)\b[\s,:]*)+", ""),
    (r"^(?:don['\u2019]?t|do not|never) forget\b|^(?:note|write|jot) down\b", "remember"),
    (r"^(?:make|take|leave|write|add|create|save) an? ([\w-]+) (?:that says|that|saying) ", r"add a \1: "),
    (r"^note that ", "remember that "),
    (r"^new (?=[\w-]+:)", "add a "),
    (r"\b(?:get rid of|throw away)\b", "delete"),
)
PHRASES = [(re.compile(pattern, re.IGNORECASE), plain) for pattern, plain in _PHRASES]
"""Phrases and the plain words that take their place, in this order. The first ones only lead into a request."""
LEAD = PHRASES[0][0]
HOW_TO = re.compile(
    r"(?i)^\W*(?:how\s+(?:do|can|could|should|would)\s+(?:i|we|you|one)\b|how\s+(?:do|does)\s.{1,60}\bwork\b"
    r"|how\s+to\b|where\s+(?:do|can)\s+(?:i|we)\b)"
)
"""Questions about how something is done."""
QUESTION = re.compile(r"(?i)^\W*(?:why|who|when|where|what|which|how)\b")
READ_ONLY = re.compile(
    r"(?i)^\W*(?:why|who|when|should|(?:can|may|do) i|did|does|is|are|was|has|have|do not|don['\u2019]?t|never)\b"
)
"""Questions and prohibitions, which never ask for a change."""

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = {"the day after tomorrow": 2, "today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
_DAYS |= {"明後日": 2, "あさって": 2, "今日": 0, "明日": 1, "昨日": -1}
TIMES = frozenset(
    f"""today tonight tomorrow yesterday now currently weekend week weeks month year morning noon afternoon evening
    night next this last coming later soon please again right then there be will {" ".join(_WEEKDAYS)}""".split()
)
"""Words that end the name of a place: `Tokyo tomorrow`."""
DAY = re.compile(
    rf"(?i)(?<!\w)(?:(?:on|this|next|over|at|for|the)\s+){{0,2}}({'|'.join(_DAYS)}|weekend|{'|'.join(_WEEKDAYS)})(?!\w)"
    r"|(明後日|あさって|今日|明日|昨日|今?週末|[月火水木金土日]曜日?)"
)


def days_until(name: str, weekday: int) -> tuple[int, int]:
    """Return the number of days from a day of this weekday to the first and to the last day of the name."""
    if name == "weekend" or name.endswith("週末"):
        return max(0, 5 - weekday), 6 - weekday
    if name not in _DAYS:
        at = _WEEKDAYS.index(name) if name in _WEEKDAYS else "月火水木金土日".index(name[0])
        return (at - weekday - 1) % 7 + 1, (at - weekday - 1) % 7 + 1
    return _DAYS[name], _DAYS[name]
