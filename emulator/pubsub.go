package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

const (
	pubsubComponent = "pubsub-emulator"
	pubsubEnv       = "PUBSUB_EMULATOR_HOST"
	pubsubImage     = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
)

var pubsubKind = kind{
	hostEnv:   pubsubEnv,
	component: pubsubComponent,
	cli:       pubsubCLI,
	image:     pubsubContainer,
}

// PubSub is a running Pub/Sub emulator, as [StartPubSub] returns it. Its methods may
// be called from several goroutines. The zero value is of no use.
type PubSub struct {
	// Host is the host:port that clients connect to; it serves gRPC and REST.
	Host string
	// Source says where the emulator came from, for people: "PUBSUB_EMULATOR_HOST",
	// "Google Cloud CLI" or "docker image " and its name.
	Source string

	process *process
}

// StartPubSub returns a Pub/Sub emulator that answers requests, as [StartSpanner]
// does for Spanner: by PUBSUB_EMULATOR_HOST, else the Google Cloud CLI's with java,
// else the container image. ctx and errors are as there.
func StartPubSub(ctx context.Context, opts ...Option) (*PubSub, error) {
	p, err := startPubSub(ctx, newConfig(opts))
	if err != nil {
		return nil, fmt.Errorf("start pubsub emulator: %w", err)
	}
	return p, nil
}

func startPubSub(ctx context.Context, cfg config) (*PubSub, error) {
	if cfg.faultInjection {
		return nil, errors.New("inject faults: only the Spanner emulator can; leave WithFaultInjection out")
	}
	if value := os.Getenv(pubsubEnv); value != "" && !cfg.private {
		host := givenHost(value)
		if err := awaitGiven(ctx, pubsubEnv, host, pubsubHostAnswers); err != nil {
			return nil, err
		}
		return &PubSub{Host: host, Source: pubsubEnv}, nil
	}
	l, err := pubsubKind.find(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p, err := l.start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &PubSub{Host: address(p.ports[0]), Source: l.source, process: p}, nil
}

// Close ends the emulator and returns when its processes are gone and its port is
// free. It does nothing for one that was already running when StartPubSub found it,
// nor when called again. An error means that a process outlived Close.
func (p *PubSub) Close() error {
	if err := p.process.close(); err != nil {
		return fmt.Errorf("close pubsub emulator: %w", err)
	}
	return nil
}

// Done returns a channel that is closed when the emulator is gone, by Close or by
// itself. It is nil for an emulator that was already running.
func (p *PubSub) Done() <-chan struct{} { return p.process.ended() }

// Err returns nil while the emulator runs and after Close. When the emulator has
// ended by itself it says so, with the last output.
func (p *PubSub) Err() error {
	if err := p.process.err(); err != nil {
		return fmt.Errorf("run pubsub emulator: %w", err)
	}
	return nil
}

// ClientOptions returns what leads a Pub/Sub client to this emulator, without
// credentials or encryption. They hold whether PUBSUB_EMULATOR_HOST is set or not,
// and win over it.
func (p *PubSub) ClientOptions() []option.ClientOption { return clientOptions(p.Host) }

// pubsubCLI starts the Google Cloud CLI's Java program.
func pubsubCLI(ctx context.Context, _ config) (launcher, error) {
	jar, err := sdkFile(ctx, "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar", pubsubComponent)
	if err != nil {
		return launcher{}, err
	}
	java, err := javaCommand()
	if err != nil {
		return launcher{}, err
	}
	return launcher{
		source:  "Google Cloud CLI",
		limit:   programLimit,
		ports:   1,
		program: java,
		args: func(ports []int, _ string) []string {
			// A short life on a small heap: the simple compiler and collector start faster.
			return []string{
				"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
				"-jar", jar, "--host=" + loopback, "--port=" + strconv.Itoa(ports[0]),
			}
		},
		answers: pubsubAnswers,
	}, nil
}

// pubsubContainer starts the container image.
func pubsubContainer(docker string, _ config) launcher {
	return launcher{
		source:  "docker image " + pubsubImage,
		image:   true,
		limit:   imageLimit,
		ports:   1,
		program: docker,
		args: func(ports []int, container string) []string {
			return dockerRun(container, pubsubImage, []published{{ports[0], 8085}},
				"gcloud", "beta", "emulators", "pubsub", "start", "--host-port=0.0.0.0:8085")
		},
		answers: pubsubAnswers,
	}
}

func pubsubAnswers(ctx context.Context, ports []int) error {
	return pubsubHostAnswers(ctx, address(ports[0]))
}

func pubsubHostAnswers(ctx context.Context, hostport string) error {
	return ask(ctx, hostport, func(ctx context.Context, conn *grpc.ClientConn) error {
		request := &pubsubpb.ListTopicsRequest{Project: defaultProject}
		if _, err := pubsubpb.NewPublisherClient(conn).ListTopics(ctx, request); err != nil {
			return fmt.Errorf("list topics: %w", err)
		}
		return nil
	})
}
