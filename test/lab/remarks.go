package lab

// What each row shows, as it stands on the page.

const (
	remarkLedger = `Each touch of the pool makes it be looked at again, and each time the cache shows none of
the Pods that were created a moment ago. Without the check five more are created at each
touch, and all but five deleted when the events come. With it the key is parked after the
first five, whatever else happens, and the event of the fifth releases it. The picture above is of this row.`

	remarkTransport = `The ledger is there, but nobody tells it of the writes. The Pod that was handed to the first
claim still looks idle in the cache, so it is offered to the second; only the tests in the
patch keep it from being given away twice. Each such plan creates a Pod for the refill, too.
The transport also asks for the leader's permit, which this edit takes away as well.`

	remarkLedgerDoubt = `The ledger takes a connection that broke for a refusal, as a client's error seems to say.
The Pods were created all the same, so each retry makes one more. With the guard such a
write is in doubt, and no second one of its kind is sent before the cache, or a quorum
read, has shown what became of it.`

	remarkLedgerACacheThatGoesBack = `A list from an API server that lags, or was restored from a backup, puts an old world into
the cache, in which the pool has no Pods. client-go compares nothing. The ledger sees that
the store's version is lower than it was, and parks all keys until it has caught up. In the
fault of the [Watermark](#watermark) it is the other way round, and in many the two cover for
each other: where an object that was seen newer is old again, each would notice.`

	remarkBacklog = `The key is stale for six seconds. Put back as a failure, it has earned a backoff of several
seconds by then, although nothing had failed; and when the first real failure comes, it
waits all of it. Parked, it starts with a count of zero. The harm needs the second fault: where a
handler adds the key on the very event that it waits for, as this controller's do, that event
wakes it in either case. So this is the guard that the warm pool could do without longest. Others,
whose keys wait for bookmarks or for other keys' events, couldn't; see the benchmark in
[freshness.md](freshness.md).`

	remarkWatermark = `A Pod that was handed out comes back as the idle Pod that it was. The next event makes the
store's version look new again, so that the ledger is content; only a memory of each object
shows that this one is old. Without it the controller offers the Pod to the next claim,
again and again, and each time the API server refuses. Nothing ends that but a new list,
which nobody asks for. With it the old event is dropped, and a list is asked for at once.`

	remarkFeed = `The watch is open, and nothing comes. With client-go's own list and watch nobody can end
it from outside, so the validator's first step has no effect, and the second, to close all
connections, comes ten seconds later. Of the other thing that the feed does, to make every
list a quorum read, there is no row: an old list is noticed by the ledger once it is there (see
[above](#ledger-a-cache-that-goes-back)) and at the start by the fence, and the quorum read
saves the time that they wait.`

	remarkValidator = `A request that was lost on its way leaves a doubt that no event will ever settle. Nobody
else asks the API server, so the key is parked for ever. The validator does, once the write
can't happen any more. The seconds are the write's timeout (1 s here, and one more), a quorum
read, and a bookmark that has to be asked for, since nothing else happens to Pods.`

	remarkConfirm = `The window that it closes is that between the snapshot and the first write, mostly less than
a millisecond. To hit it each time, the plan is made slow here, in both builds, as on a
machine without a free processor. Without the guard all deletions are refused, since they
carry the version that the plan was made on. So it saves writes in vain, and no more: what it
lets through by mistake, the preconditions stop.`

	remarkGate = `What the gate alone does is to end a start that can't succeed, and to say why. With client-go's
own wait the process hangs for ever, and looks healthy to who doesn't read its log. That no
worker starts before the caches are complete is its job too, and the next row is about that.`

	remarkGateFenceAndLedger = `Work on an empty cache. Without the gate the fence still holds the workers back; without the
fence, too, the ledger calls a store stale that has no version yet. Both were tried, and no
Pod was created: it takes all three to be gone. So of this harm the gate could be spared,
here; where a controller takes one guard of the three, it can't.`

	remarkFence = `The standby's cache is warm and old. Its ledger is empty, since the writes that are missing
were another process's. Without the fence it takes over in an instant and creates what its
predecessor has created already. With it, it waits until it sees what the API server had
when it became leader.`

	remarkTerm = `Two controllers believe that they lead. client-go's leader goes on until its renewals
have failed for the renew deadline, ten seconds, and both create the Pods that are missing.
With the guard it stops with the first look at the lease. What it doesn't do: a leader
that sleeps through its whole term ends when it wakes, before it sends anything, with this guard
or without; that was tried, and did no harm in either case.`

	remarkReadsWrites = `One connection carries everything, and when it dies the hand-out waits for as long as TCP or
HTTP/2 takes to notice, 45 seconds at least, since nothing else bounds it. With two
configurations the writes go over another connection, and have a timeout.`

	remarkQueue = `After the restart the keys of 61 pools are in the queue. In order of arrival the claim waits
for most of the others; by priority it is next.`

	remarkRecover = `The bug is planted, in both builds. Without the guard the process ends, would be started
again, and would end again: one broken object stops all pools. With it, it costs its own pool
a backoff.`

	remarkTestsOfTheHandOut = `The only row in which a Pod is really given to two claims. The blind leader's guards can't
know of a write that another process has made; the tests in the patch do, in etcd itself. This
is what "exactly once" rests on.`

	remarkPreconditionsOfADeletion = `The blind leader takes the Pod for idle, and for one too many. Without the preconditions it
deletes a Pod in which somebody works.`

	remarkLookAtThePoolBeforeCreating = `The pool's cache isn't behind anything that this process has written, so no guard can tell
that it is old. One read before a creation, which is rare, closes it. Without it the harm is
small, a Pod that the garbage collector takes: the next write, of the pool's status, is answered that the pool
is gone, and the ledger parks the key.`

	remarkNoWriteThatSaysNothingNew = `No invariant is broken, since the API server makes no new version of an object that doesn't
change. But each heartbeat of each Pod costs a write.`
)
