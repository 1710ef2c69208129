"""English sentences as people say them, none of which the grammar of the built-in corpus can make."""

EVERYDAY = """\
My phone is broken.
What time does the bus leave?
I forgot my umbrella at the office.
Could you turn down the music, please?
She has been working here since last spring.
The printer is out of paper again.
How much does this jacket cost?
We missed the last train to the airport.
Please sign at the bottom of the page.
He caught a cold over the weekend.
There is no signal in the basement.
Let me know if you need anything else.
The neighbors are painting their fence.
My password does not work anymore.
Is there a pharmacy near the hotel?
They postponed the meeting until Thursday.
I would rather stay in tonight.
The soup tastes a little salty.
Our flight was delayed by two hours.
Can I pay by credit card?
The kids are playing in the backyard.
She is allergic to peanuts.
Turn left at the second traffic light.
We ran out of milk and eggs.
The battery lasts about ten hours.
Who left the window open?
It has been raining since this morning.
I cannot find my glasses anywhere.
The doctor told him to rest for a week.
Do you have this shirt in a larger size?
Their new apartment has a balcony.
The elevator is out of service.
I will call you back in five minutes.
Someone parked in front of our garage.
The museum is closed on Mondays.
She passed her driving test at last.
Would you like some more coffee?
The screen went black all of a sudden.
We should book the tickets in advance.
His handwriting is hard to read.
The dog barked all night long.
I need to renew my passport.
The recipe calls for two cups of flour.
Her luggage never arrived in Madrid.
You can drop me off at the corner.
The heating does not work properly.
He apologized for being late.
Are there any seats left for tonight?
My back hurts after sitting all day.
They moved to the countryside last year.
The invoice is attached to this email.
Please keep your voice down in the library.
The milk smells sour.
I have never tried sushi before.
We got lost on the way to the concert.
The shop around the corner sells fresh bread.
Is this seat taken?
She speaks four languages fluently.
The traffic was terrible this afternoon.
What do you recommend for dessert?
""".splitlines()
