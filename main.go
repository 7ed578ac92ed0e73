// Command warmpool-controller keeps the Pods of WarmPools running before anybody
// asks, and hands them out to PodClaims. It runs in a cluster as a Deployment
// (artifacts/deploy) and outside one with --kubeconfig.
//
// This file is wiring: flags, clients, informers, controller. The story of one key
// is in controller.go, its writes in writes.go, the decisions in pkg/pool.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"warmpool.dev/controller/pkg/freshness"
	clientset "warmpool.dev/controller/pkg/generated/clientset/versioned"
	"warmpool.dev/controller/pkg/generated/clientset/versioned/scheme"
)

// component names this controller in events, in the lease and to the API server.
const component = "warmpool-controller"

// options are the command line.
type options struct {
	kubeconfig       string
	namespace        string
	workers          int
	cacheSyncTimeout time.Duration
	writeTimeout     time.Duration
	qps              float64
	burst            int
	listenAddress    string
	leaderElection   leaderElectionOptions
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of the kubeconfig to use. Empty: $KUBECONFIG if set, else the service account of the Pod that this runs in.")
	flags.StringVar(&o.namespace, "namespace", metav1.NamespaceAll, "Namespace to serve. Empty: all.")
	flags.IntVar(&o.workers, "workers", 4, "How many pools are worked on at the same time. One pool is always worked on by one worker.")
	flags.DurationVar(&o.cacheSyncTimeout, "cache-sync-timeout", freshness.DefaultSyncTimeout, "How long to wait for the caches at the start. Past it the process ends and says which cache is missing and why.")
	flags.DurationVar(&o.writeTimeout, "write-timeout", freshness.DefaultWriteTimeout, "How long a write may take; the API server is told, and gives it up then.")
	flags.Float64Var(&o.qps, "kube-api-qps", 200, "Requests per second to the API server, on average. Hand-outs wait when it is reached.")
	flags.IntVar(&o.burst, "kube-api-burst", 400, "Requests to the API server above the average that may be made at once.")
	flags.StringVar(&o.listenAddress, "listen-address", "127.0.0.1:8080", "Address that serves /healthz, /readyz and /metrics. Empty: none.")
	o.leaderElection.addFlags(flags)
}

// validate returns an error that says what to do about a value that can't be used.
func (o *options) validate() error {
	if o.workers < 1 {
		return fmt.Errorf("--workers is %d: give at least 1", o.workers)
	}
	if o.cacheSyncTimeout <= 0 {
		return fmt.Errorf("--cache-sync-timeout is %s: give a positive duration, such as 15s", o.cacheSyncTimeout)
	}
	if o.qps <= 0 || o.burst < 1 {
		return fmt.Errorf("--kube-api-qps is %g and --kube-api-burst is %d: give positive numbers", o.qps, o.burst)
	}
	if o.writeTimeout <= 0 {
		return fmt.Errorf("--write-timeout is %s: give a positive duration, such as 5s", o.writeTimeout)
	}
	return o.leaderElection.validate(o.writeTimeout)
}

func main() {
	var o options
	klog.InitFlags(nil)
	o.addFlags(flag.CommandLine)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		klog.Background().Error(err, "The controller ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	klog.Flush()
}

// run puts the parts together and returns when they have ended. The caches are filled
// at once, so that a standby can take over in an instant; the controller acts only
// while this process leads, and from behind a fence.
func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	term, err := o.leaderElection.newTerm(config, o.writeTimeout)
	if err != nil {
		return err
	}
	guards, err := newGuards(config, o, term)
	if err != nil {
		return err
	}
	health := &health{caches: guards.Ready}
	if err := health.serve(ctx, o.listenAddress); err != nil {
		return err
	}
	// The recorder writes with a client of its own: events must not use up the
	// requests that the hand-outs may make.
	recorder, stopRecording, err := newRecorder(ctx, config)
	if err != nil {
		return err
	}
	defer stopRecording()
	controller, err := newGuardedController(guards, o.namespace, recorder)
	if err != nil {
		return err
	}

	// The guards outlive the workers: what these do last is still guarded.
	guarded, stopGuards := context.WithCancel(context.WithoutCancel(ctx))
	defer stopGuards()
	leading, stopLeading := context.WithCancel(ctx)
	defer stopLeading()
	guardsErr := make(chan error, 1)
	go func() {
		defer stopLeading() // no work without guards
		guardsErr <- guards.Run(guarded)
	}()
	err = lead(leading, o.leaderElection, term, func(ctx context.Context) error {
		if err := guards.TakeOver(ctx); err != nil {
			return err
		}
		health.lead()
		controller.Run(ctx, o.workers)
		return nil
	})
	if errors.Is(err, errLostLease) {
		return err // at once: nothing may be written any more
	}
	stopGuards()
	if leading.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // asked to end while it was starting
	}
	return errors.Join(<-guardsErr, err)
}

// newGuards makes the guards against a stale cache, with clients for what they watch.
func newGuards(config *rest.Config, o options, term *freshness.Term) (*freshness.Guards[cache.ObjectName], error) {
	options := freshness.Options[cache.ObjectName]{
		Name:         "warmpools",
		WriteTimeout: o.writeTimeout,
		SyncTimeout:  o.cacheSyncTimeout,
	}
	if term != nil {
		options.Permit = term.Permit
	}
	guards, err := freshness.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("set up the guards: %w", err)
	}
	if err := registry.Register(guards.Metrics); err != nil {
		return nil, fmt.Errorf("register the metrics of the guards: %w", err)
	}
	return guards, nil
}

// newGuardedController makes the controller, with one pair of clients for the caches and
// another for the writes.
func newGuardedController(guards *freshness.Guards[cache.ObjectName], namespace string, recorder record.EventRecorder) (*Controller, error) {
	kubeReads, warmpoolReads, err := newClients(guards.Reads())
	if err != nil {
		return nil, err
	}
	feeds, err := newFeeds(guards, kubeReads, warmpoolReads, namespace)
	if err != nil {
		return nil, err
	}
	kube, warmpool, err := newClients(guards.Writes())
	if err != nil {
		return nil, err
	}
	return NewController(guards, feeds, kube, warmpool, recorder, clock.RealClock{})
}

// newClients makes a client for Kubernetes' own resources and one for ours.
func newClients(config *rest.Config) (kubernetes.Interface, clientset.Interface, error) {
	// All but custom resources come as protobuf too, which costs less.
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = runtime.ContentTypeProtobuf
	protobuf.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfig(protobuf)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for the API server %s: %w", config.Host, err)
	}
	warmpool, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for the API server %s: %w", config.Host, err)
	}
	return kube, warmpool, nil
}

// restConfig finds the API server: --kubeconfig, $KUBECONFIG, or the service account
// of the Pod that this runs in.
func (o *options) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w (outside a cluster, give --kubeconfig)", err)
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	return rest.AddUserAgent(config, component), nil
}

// newRecorder returns a recorder of events; they are written in the background until
// the returned function is called.
func newRecorder(ctx context.Context, config *rest.Config) (record.EventRecorder, func(), error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: eventBudget}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events(metav1.NamespaceAll)})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}), broadcaster.Shutdown, nil
}

// eventBudget names what an event is charged to. client-go lets an object have 25 events,
// and then one in five minutes; a pool that has told of many Pods must be able to tell of
// a refusal, so warnings are counted apart.
func eventBudget(event *corev1.Event) string {
	about := event.InvolvedObject
	return strings.Join([]string{event.Source.Component, about.Kind, about.Namespace, about.Name, string(about.UID), event.Type}, "/")
}
