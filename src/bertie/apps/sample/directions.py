"""Pairs of passages that a preposition tells apart: from or to, before or after, with or without. For re-ranking.

A line has two passages, and a question for each. The other passage has nearly the same words, so that words alone
cannot tell which one is meant.
"""

import random
from typing import Any

_DIRECTIONS = """
The ferry from Elsby to Norhavn leaves at nine.|The ferry from Norhavn to Elsby leaves at noon.|When does the ferry to Norhavn leave?|When does the ferry to Elsby leave?
Trains from the airport to the city run all night.|Trains from the city to the airport stop at midnight.|Can I take a train from the airport at night?|Can I take a train to the airport at night?
A parcel sent from Korea to Peru needs form A.|A parcel sent from Peru to Korea needs form B.|Which form is needed for a parcel to Peru?|Which form is needed for a parcel to Korea?
The letter from Ines to Marek was lost.|The letter from Marek to Ines was found.|What happened to the letter from Ines?|What happened to the letter from Marek?
Visitors from Brazil to Kenya apply online.|Visitors from Kenya to Brazil apply at the embassy.|How do visitors to Kenya apply?|How do visitors to Brazil apply?
Calls from a landline to a mobile phone cost ten cents.|Calls from a mobile phone to a landline are free.|What do calls to a mobile phone cost?|What do calls from a mobile phone cost?
The translation from Welsh to Dutch took a year.|The translation from Dutch to Welsh took a month.|How long did the translation from Welsh take?|How long did the translation from Dutch take?
To convert from miles to kilometers, multiply by 1.609.|To convert from kilometers to miles, multiply by 0.621.|How do I convert miles to kilometers?|How do I convert kilometers to miles?
The road from the mill to the church is paved.|The road from the church to the mill is gravel in its upper part.|Is the road from the mill to the church paved?|Is the road from the church to the mill paved?
Data is copied from the laptop to the server every hour.|Data is copied from the server to the laptop once a day.|How often is data copied to the server?|How often is data copied to the laptop?
He moved from Oslo to Lima in 1990.|He moved from Lima to Oslo in 2004.|When did he move to Lima?|When did he move to Oslo?
The pass from Rossi to Braun came too late.|The pass from Braun to Rossi led to the goal.|Which pass went to Braun?|Which pass went to Rossi?
Money goes from the fund to the schools in spring.|Money goes from the schools to the fund in autumn.|When does money go to the schools?|When does money go from the schools?
Heat flows from the stove to the water tank in winter.|Heat flows from the water tank to the stove only by mistake.|When does heat flow to the water tank?|When does heat flow from the water tank?
The flight from Quito to Madrid has one stop.|The flight from Madrid to Quito is direct.|Does the flight to Madrid have a stop?|Does the flight from Madrid have a stop?
Take the tablet before a meal for the stomach.|Take the tablet after a meal for sleep.|Why is the tablet taken before a meal?|Why is the tablet taken after a meal?
Wash the brush before the varnish dries with water.|Wash the brush after the varnish dries with spirit.|How is the brush washed before the varnish dries?|How is the brush washed after the varnish dries?
Visitors who come before ten pay half.|Visitors who come after ten pay the full price.|What do visitors pay before ten?|What do visitors pay after ten?
The choir sings before the speech in June.|The choir sings after the speech in July.|In which month does the choir sing before the speech?|In which month does the choir sing after the speech?
Turn the valve off before the filter is changed on model K.|Turn the valve off after the filter is changed on model L.|On which model is the valve turned off before the filter is changed?|On which model is the valve turned off after the filter is changed?
Rooms with a view of the lake cost ninety.|Rooms without a view of the lake cost sixty.|What does a room with a view cost?|What does a room without a view cost?
Bread with yeast rises for two hours.|Bread without yeast is baked at once.|How is bread with yeast made?|How is bread without yeast made?
Riders with a helmet may use the upper track.|Riders without a helmet stay on the lower track.|Where may riders with a helmet go?|Where may riders without a helmet go?
A visa with work rights takes eight weeks.|A visa without work rights takes two weeks.|How long does a visa with work rights take?|How long does a visa without work rights take?
Plants with flowers are watered in the morning.|Plants without flowers are watered in the evening.|When are plants with flowers watered?|When are plants without flowers watered?
The mayor spoke for the bridge on Monday.|The mayor spoke against the bridge on Friday.|When did the mayor speak for the bridge?|When did the mayor speak against the bridge?
Twelve members voted for the new rule.|Nine members voted against the new rule.|How many voted for the rule?|How many voted against the rule?
The farmers argued for the dam because of floods.|The farmers argued against the dam because of fish.|Why did the farmers argue for the dam?|Why did the farmers argue against the dam?
The paint for use inside the house is white.|The paint for use outside the house is gray.|Which paint is used inside the house?|Which paint is used outside the house?
Smoking inside the station costs a fine.|Smoking outside the station is allowed.|May I smoke inside the station?|May I smoke outside the station?
Pipes laid inside the wall are copper.|Pipes laid outside the wall are steel.|What are pipes inside the wall made of?|What are pipes outside the wall made of?
Birds nest above the snow line in May.|Birds nest below the snow line in March.|When do birds nest above the snow line?|When do birds nest below the snow line?
Water above the weir is clear.|Water below the weir is brown.|What color is the water above the weir?|What color is the water below the weir?
Shops above the post office open at eight.|Shops below the post office open at ten.|When do shops above the post office open?|When do shops below the post office open?
Ships pass over the tunnel at high tide.|Ships pass under the bridge at low tide, and cars drive through the tunnel.|What passes over the tunnel?|What passes under the bridge?
The cable runs over the fence near the barn.|The cable runs under the fence near the gate.|Where does the cable run over the fence?|Where does the cable run under the fence?
Children under six travel free.|Children over six pay half.|What do children under six pay?|What do children over six pay?
Pour the milk into the bowl slowly.|Pour the milk out of the bowl quickly.|How is the milk poured into the bowl?|How is the milk poured out of the bowl?
Goods shipped into the country are taxed.|Goods shipped out of the country are not taxed.|Are goods shipped into the country taxed?|Are goods shipped out of the country taxed?
The cat climbed into the basket at dusk.|The cat climbed out of the basket at dawn.|When did the cat climb into the basket?|When did the cat climb out of the basket?
The path up the hill has steps.|The path down the hill has a rail.|What does the path up the hill have?|What does the path down the hill have?
Walking up the tower takes ten minutes.|Walking down the tower takes five minutes.|How long does it take to walk up the tower?|How long does it take to walk down the tower?
The portrait painted by Ana hangs in the hall.|The portrait painted of Ana hangs in the attic.|Where is the portrait painted by Ana?|Where is the portrait of Ana?
The song written by Lee sold well.|The song written for Lee was never sung.|Did the song written by Lee sell?|Was the song written for Lee sung?
The offer made by the bank ends in May.|The offer made to the bank ends in June.|When does the offer by the bank end?|When does the offer to the bank end?
The shop is open until March.|The shop is open since March again.|Until when is the shop open?|Since when is the shop open again?
The bridge was closed until Easter for repairs.|The bridge was closed since Easter because of ice.|Why was the bridge closed until Easter?|Why was the bridge closed since Easter?
Lessons during the holidays are short.|Lessons outside the holidays are long.|How long are lessons during the holidays?|How long are lessons outside the holidays?
Turn left toward the harbor to find the inn.|Turn left away from the harbor to find the garage.|What is found toward the harbor?|What is found away from the harbor?
Sit near the stage to see the dancers.|Sit far from the stage to hear the organ.|What is it good for to sit near the stage?|What is it good for to sit far from the stage?
The lamp on the desk is broken.|The lamp under the desk works.|Does the lamp on the desk work?|Does the lamp under the desk work?
The tax on salt was raised.|The tax from salt paid for the wall.|What happened to the tax on salt?|What did the tax from salt pay for?
The train through Basel is slow.|The train around Basel is fast.|Is the train through Basel fast?|Is the train around Basel fast?
"""  # noqa: E501

_LINES = [line.split("|") for line in _DIRECTIONS.strip().splitlines()]
DIRECTION_ROWS = 2 * len(_LINES)


def make_direction(index: int, rng: random.Random) -> dict[str, Any]:
    """A question, the passage that answers it, and both passages. The rows are written, not drawn."""
    line, side = divmod(index % DIRECTION_ROWS, 2)
    *choices, first, second = _LINES[line]
    return {"question": (first, second)[side], "context": choices[side], "choices": choices, "label": side}
