"""Texts in many scripts, with what breaks offsets: direction marks, joined emoji, combining marks, controls."""

from __future__ import annotations

SCRIPTS = {
    "right to left": "המעבורת יוצאת בצהריים. הכלבים נוסעים חינם! מי שומר על המגדלור? "
    "العبّارة تغادر ظهراً. هل تسافر الكلاب مجاناً؟ نعم.",
    "both directions": "He said \u2067שלום, עולם\u2069 twice. Then \u200fABC\u200f (123) came. Why? اَلْكَلْب ran.",
    "families and flags": "👨\u200d👩\u200d👧\u200d👦 went home. 🏳\ufe0f\u200d🌈 waved! 🇩🇪🇫🇷🇯🇵 met? 👩🏽\u200d🚀 flew. "
    "1\ufe0f\u20e3 won. ❤\ufe0f\u200d🔥\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f Ended.",
    "combining marks": "Cafe\u0301 au lait. Z\u0351\u036b\u0343a\u0321l\u0489go came! A\u030a\u0323 ring? ก็ดี. "
    "नमस्ते दुनिया। कैसे हो? Tiê\u0301ng.",
    "no spaces": "渡し船は正午に出る。犬は無料だ！灯台守は誰？「はい」と言った。한국어는 띄어쓴다. 좋아요! ภาษาไทยไม่มี",
    "mixed": "Привет, мир. Γειά σου! שלום. 你好。Hello 👋🏿 world… ﷽ ½ ℃ ﬁn. 𝔘𝔫𝔦𝔠𝔬𝔡𝔢! 𓀀𓂀 ends.",
    "controls": "A\x01b. C\x07d!\x1b[31m Red?\x0b Next.\x0c Page. \x85Line. \u2028Sep. \u200b\ufeffHidden. "
    "\u00adSoft. \ufffd \U0010ffff.",
    "carriage returns": "One.\rTwo.\r\nThree.\n\rFour.\r\r\nFive. ",
}
