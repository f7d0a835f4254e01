"""What the agency's weather codes mean, in plain English.

The codes are built alike: the first digit is the weather that prevails (1 clear, 2 cloudy, 3 rain, 4 snow), the rest
says what else there is and when. The agency lists them, with the Japanese words, on its forecast pages.
"""

from __future__ import annotations

_PREVAILING = {"1": "Clear", "2": "Cloudy", "3": "Rain", "4": "Snow"}

_SKY = {
    "00": "",
    "01": "cloudy at times",
    "02": "brief rain",
    "03": "rain at times",
    "04": "brief snow",
    "05": "snow at times",
    "06": "brief rain or snow",
    "07": "rain or snow at times",
    "08": "brief rain or thunderstorms",
    "10": "cloudy at times later",
    "11": "cloudy later",
    "12": "brief rain later",
    "13": "rain at times later",
    "14": "rain later",
    "15": "brief snow later",
    "16": "snow at times later",
    "17": "snow later",
    "18": "rain or snow later",
    "19": "rain or thunderstorms later",
    "20": "brief rain in the morning and evening",
    "21": "brief rain in the morning",
    "22": "brief rain in the evening",
    "24": "rain from around noon",
    "25": "rain from the evening",
    "26": "rain at night",
    "28": "snow from around noon",
    "29": "snow from the evening",
    "30": "snow at night",
    "31": "fog or drizzle at sea and on the coast",
    "40": "rain at times with thunder",
    "50": "snow at times with thunder",
    "60": "brief snow or rain",
    "70": "snow or rain at times",
    "81": "snow or rain later",
}
"""What the last two digits add to a clear or cloudy sky, where both mean the same."""

_OWN = {
    "123": "Clear, thunderstorms near mountains",
    "124": "Clear, snow near mountains",
    "125": "Clear, thunderstorms in the afternoon",
    "126": "Clear, rain from around noon",
    "127": "Clear, rain from the evening",
    "128": "Clear, rain at night",
    "130": "Fog in the morning, then clear",
    "131": "Clear, fog around dawn",
    "132": "Clear, cloudy in the morning and evening",
    "201": "Cloudy, clear at times",
    "209": "Fog",
    "210": "Cloudy, clear at times later",
    "211": "Cloudy, clear later",
    "223": "Cloudy, clear at times during the day",
    "301": "Rain, clear at times",
    "302": "Rain on and off",
    "303": "Rain, snow at times",
    "304": "Rain or snow",
    "306": "Heavy rain",
    "308": "Rain with storm winds",
    "309": "Rain, brief snow",
    "311": "Rain, clear later",
    "313": "Rain, cloudy later",
    "314": "Rain, snow at times later",
    "315": "Rain, snow later",
    "316": "Rain or snow, clear later",
    "317": "Rain or snow, cloudy later",
    "320": "Rain in the morning, then clear",
    "321": "Rain in the morning, then cloudy",
    "322": "Rain, brief snow in the morning and evening",
    "323": "Rain, clear from around noon",
    "324": "Rain, clear from the evening",
    "325": "Rain, clear at night",
    "326": "Rain, snow from the evening",
    "327": "Rain, snow at night",
    "328": "Rain, briefly heavy",
    "329": "Rain, brief sleet",
    "340": "Snow or rain",
    "350": "Rain with thunder",
    "361": "Snow or rain, clear later",
    "371": "Snow or rain, cloudy later",
    "401": "Snow, clear at times",
    "402": "Snow on and off",
    "403": "Snow, rain at times",
    "405": "Heavy snow",
    "406": "Snowstorm",
    "407": "Severe snowstorm",
    "409": "Snow, brief rain",
    "411": "Snow, clear later",
    "413": "Snow, cloudy later",
    "414": "Snow, rain later",
    "420": "Snow in the morning, then clear",
    "421": "Snow in the morning, then cloudy",
    "422": "Snow, rain from around noon",
    "423": "Snow, rain from the evening",
    "425": "Snow, briefly heavy",
    "426": "Snow, sleet later",
    "427": "Snow, brief sleet",
    "450": "Snow with thunder",
}


def in_english(code: str) -> str:
    """The weather a code stands for, or an empty text for a code that is not in the agency's list."""
    if code in _OWN:
        return _OWN[code]
    prevailing = _PREVAILING.get(code[:1])
    if prevailing is None or len(code) != 3:
        return ""
    if code[1:] == "00":
        return prevailing
    added = _SKY.get(code[1:], "") if code[0] in "12" else ""
    return f"{prevailing}, {added}" if added else ""
