package faultproxy

// Actions on the events of watches. Their rules look at events only, of watches that
// are open already too; Match.Verb may be left out.

import "time"

// HoldStream holds the event that it fires for, and with it everything that comes
// after it in that watch, until the fault is released: a network that has become slow.
// The events are not lost.
func HoldStream() Action {
	return Action{name: "HoldStream", event: func(*Fault, *Event) verdict { return verdict{hold: true} }}
}

// LagEvents sends the events that it fires for so much later than they came, and
// everything behind them no earlier: a cache that is always a little old.
func LagEvents(by time.Duration) Action {
	return Action{name: "LagEvents", event: func(*Fault, *Event) verdict { return verdict{late: by} }}
}

// Freeze holds everything in the watches that Match chooses, by resource and namespace,
// the end of a watch included, until the fault is released: the connection stays open,
// nothing comes. Over HTTP/2 the proxy goes on answering pings; BlackHole doesn't.
// EndWatches gets rid of what is frozen.
func Freeze() Action {
	return Action{name: "Freeze", freezes: true, event: func(*Fault, *Event) verdict { return verdict{hold: true} }}
}

// HoldEvents holds only the events that it fires for, until the fault is released;
// later ones overtake them. No API server does that: it shows an informer old objects
// after new ones.
func HoldEvents() Action {
	return Action{name: "HoldEvents", event: func(*Fault, *Event) verdict { return verdict{park: true} }}
}

// DropEvents loses the events that it fires for. No API server does that, except to
// bookmarks, which it needn't send: Match.Event "BOOKMARK".
func DropEvents() Action {
	return Action{name: "DropEvents", event: func(*Fault, *Event) verdict { return verdict{drop: true} }}
}

// EndStream ends the watch in place of the event that it fires for; see EndWatches for
// what the replies do.
func EndStream(reply Reply) Action {
	return Action{name: "EndStream(" + reply.String() + ")", event: func(*Fault, *Event) verdict { return verdict{end: &reply} }}
}

// OnEvent calls a function before the event is passed on. The function may read the
// event while it runs.
func OnEvent(call func(e *Event)) Action {
	return Action{name: "OnEvent", event: func(_ *Fault, e *Event) verdict {
		call(e)
		return verdict{}
	}}
}
