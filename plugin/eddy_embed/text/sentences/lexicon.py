"""Abbreviations and words that begin sentences; spaCy's own abbreviations of a language come on top of these.

Abbreviations are in lower case without their last stop. Words that begin sentences settle what no rule of form can:
"the U.S. Army" against "the U.S. The".
"""

from __future__ import annotations

NEVER_LAST = frozenset(
    "e.g i.e eg ie cf vs v viz ca approx esp incl resp al.g c.f "
    "z.b d.h u.a s.o s.u i.d.r o.ä m.e z.t u.u bzw vgl sog inkl ggf evtl bspw "
    "sig sigg dott ul p.ex p.ej av env bijv d.w.z o.a т.е напр им ул см рис стр p.es".split()
)
"""Abbreviations that something must follow."""

MAY_BE_LAST = frozenset(
    "inc ltd co corp jr sr bros llc plc al ave blvd rd hwy sq dept univ assn ed eds esq oz lb lbs dist mfg "
    "mio mrd tsd str jh jhd std min ud uds avda apdo dto cía uu núm hl geb gest г гг в вв руб коп млн млрд тыс".split()
)
"""Abbreviations that may end a sentence: they do when a word that begins sentences follows."""

LISTING_LAST = frozenset("etc usw u.s.w ecc enz osv itd itp т.д т.п".split())
"""Abbreviations that end a sentence when a capital follows."""

TITLES = frozenset(
    "dr mr mrs ms mx prof profs st ste mt ft gen gov sen rep rev hon pres capt cpt cmdr adm lt col maj sgt cpl pvt "
    "supt insp det messrs mme mlle mgr fr".split()
)
"""Abbreviations before a name; in the middle of cased text they count only with a capital."""

TITLES_OF = {
    "de": frozenset("hr hrn frl dipl ing mag".split()),
    "es": frozenset("sr sra srta dra d dña ee".split()),
    "pt": frozenset("sr sra dra d".split()),
    "fr": frozenset("m mm".split()),
    "it": frozenset("sig sigg dott ing avv arch geom egr spett gent".split()),
    "pl": frozenset("ul al pl os inż mgr hab ks św".split()),
    "ru": frozenset("проф акад доц св".split()),
    "nl": frozenset("dhr mevr drs".split()),
}

NUMBERED = frozenset(
    "no nos nr nrs fig figs eq eqs p pp pg ch chap chaps vol vols sec secs sect art arts tab tabs abb bd kap ex exs "
    "op pt pts cat ref refs para paras app ver ff cap pág págs núm núms col ln lns cf bl n nn t д № c ca rev".split()
)
"""Abbreviations before a number."""

CLOCK = frozenset({"a.m", "p.m"})
CLOCK_FOLLOWERS = frozenset(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Wed Thu Fri Sat Sun January February March April "
    "May June July August September October November December Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov Dec "
    "Eastern Central Mountain Pacific GMT UTC EST EDT CST CDT MST MDT PST PDT CET CEST BST".split()
)

ORDINAL_STOP = frozenset("de da nb nn no fi cs sk pl hu hr sl sr et lv is tr lb hsb dsb fo".split())
"""Languages that write an ordinal number with a stop: "3. Oktober"."""

STARTERS = {
    "en": frozenset(
        "The This That These Those There Then They He She It We You I His Her Its Our Their My Your A An In On At As "
        "If When While Where What Who Whom Whose Which Why How But And Or So Yet For From To By With Without After "
        "Before Although Though Because Since However Therefore Thus Hence Moreover Furthermore Meanwhile Nevertheless "
        "Nonetheless Nothing No Not Now Here Some Many Most Much Such Several Each Every Both All Another Other Others "
        "One Two Is Are Was Were Do Does Did Can Could Will Would Should Might Must Let Please See Later Earlier Once "
        "Only Also Even Still Just Perhaps Maybe Yes Nobody Everyone Everybody Someone Anyone Instead During Under "
        "Over Between Among Until Unless Despite Consider Suppose Has Have Had Today Yesterday Tomorrow Again Finally "
        "First Second Third Next Last Soon Often Sometimes Never Always Few None Neither Either According Through "
        "About Like Unlike Given Within Upon Whether Whatever Whenever Rather Indeed Likewise "
        "Similarly Otherwise".split()
    ),
    "de": frozenset(
        "Der Die Das Den Dem Des Ein Eine Einen Einem Einer Er Sie Es Wir Ihr Ich Du Man Dann Danach Dort Hier Da "
        "Daher Darum Deshalb Doch Aber Und Oder Denn Wenn Als Wie Wo Was Wer Warum Wann Ob Im In Am An Auf Aus Bei Mit "
        "Nach Von Vom Vor Zu Zum Zur Für Um Durch Gegen Ohne Über Unter Zwischen Seit Bis Auch Nur Noch Nun Jetzt "
        "Heute Gestern Morgen So Sein Seine Ihre Mein Unser Dies Diese Dieser Dieses Jede Jeder Jedes Alle Viele "
        "Einige Kein Keine Nein Ja Nicht Nichts Damit Dabei Dazu Davon Später Früher Zuerst Schließlich "
        "Außerdem Jedoch".split()
    ),
    "fr": frozenset(
        "Le La Les L Un Une Des Du De Il Elle Ils Elles On Nous Vous Je J Tu Ce C Cela Ça Cette Ces Cet Son Sa Ses Mon "
        "Ma Mes Notre Votre Leur Et Ou Mais Donc Or Car Ni Puis Ensuite Alors Après Avant Quand Si Comme Où Qui Que Qu "
        "Quoi Pourquoi Comment Dans En Sur Sous Avec Sans Pour Par Chez Depuis Pendant Aujourd Hier Demain Ici Là "
        "Maintenant Toujours Jamais Rien Personne Tout Tous Toute Toutes Oui Non Ainsi Cependant Enfin D À".split()
    ),
    "es": frozenset(
        "El La Los Las Un Una Unos Unas Lo Él Ella Ellos Ellas Yo Tú Usted Nosotros Se Me Te Le Les Su Sus Mi Mis Este "
        "Esta Estos Estas Ese Esa Eso Esto Aquel Y O Pero Pues Porque Cuando Si Como Donde Quien Que Qué Cómo Cuándo "
        "Dónde En De Del A Al Con Sin Por Para Sobre Desde Hasta Entre Después Antes Luego Entonces Ahora Hoy Ayer "
        "Mañana Aquí Allí También Tampoco Siempre Nunca Nada Nadie Todo Todos Sí No Así Sin Además".split()
    ),
}
"""Capitalised words that begin a sentence far oftener than they follow an abbreviation, for each language."""

SPEECH = (
    "said|says|asked|asks|replied|cried|answered|shouted|whispered|exclaimed|yelled|called|repeated|added|muttered|"
    "murmured|growled|snapped|demanded|inquired|screamed|gasped|sighed|laughed|remarked|observed|continued|went on"
)
