//! iceoryx2's publish-subscribe: samples that are loaned, written in place, and read in place. Its subscriber asks without sleeping.

use std::os::unix::net::UnixStream;

use iceoryx2::config::Config;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::sample_mut::SampleMut;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use super::{Reader, Receive, Send};
use crate::place::Place;
use crate::{hear, say, Failure, AROUND, SIZES};

type Messages = PortFactory<ipc::Service, [u8], ()>;

/// Samples under way: of each size as many as our pool holds, so a service for each.
fn open(place: &Place, size: usize) -> Result<(Node<ipc::Service>, Messages), Failure> {
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    config.global.prefix = FileName::new(place.prefix().as_bytes())?;
    config.global.set_root_path(&Path::new(place.file("iceoryx2").as_os_str().as_encoded_bytes())?);
    let node = NodeBuilder::new().config(&config).signal_handling_mode(SignalHandlingMode::Disabled).create::<ipc::Service>()?;
    let name = format!("messages-{size}");
    let messages = node
        .service_builder(&name.as_str().try_into()?)
        .publish_subscribe::<[u8]>()
        .payload_alignment(Alignment::new(4096).ok_or("an alignment")?)
        .enable_safe_overflow(false)
        .history_size(0)
        .subscriber_max_buffer_size(AROUND / size)
        .subscriber_max_borrowed_samples(1)
        .open_or_create()?;
    Ok((node, messages))
}

struct Sending {
    publishers: Vec<(usize, Publisher<ipc::Service, [u8], ()>)>,
    sample: Option<SampleMut<ipc::Service, [u8], ()>>,
    _kept: Vec<(Node<ipc::Service>, Messages)>,
}

pub fn sender(place: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    let (mut publishers, mut kept) = (Vec::new(), Vec::new());
    for size in SIZES {
        let (node, messages) = open(place, size)?;
        let publisher = messages
            .publisher_builder()
            .initial_max_slice_len(size)
            .max_loaned_samples(1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()?;
        publishers.push((size, publisher));
        kept.push((node, messages));
    }
    // Its subscribers are there before the first message is.
    hear(told)?;
    Ok(Box::new(Sending { publishers, sample: None, _kept: kept }))
}

impl Send for Sending {
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure> {
        let (_, publisher) = self.publishers.iter().find(|(of, _)| *of == size).ok_or("no such size")?;
        // `fill` on uninitialised memory is one memset, as it is for the others.
        let mut sample = publisher.loan_slice_uninit(size)?;
        sample.payload_mut().fill(std::mem::MaybeUninit::new(filling));
        // SAFETY: each byte was written above.
        self.sample = Some(unsafe { sample.assume_init() });
        Ok(())
    }

    fn send(&mut self, _: usize) -> Result<(), Failure> {
        self.sample.take().ok_or("nothing was written")?.send()?;
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

struct Receiving {
    subscribers: Vec<(usize, Subscriber<ipc::Service, [u8], ()>)>,
    _kept: Vec<(Node<ipc::Service>, Messages)>,
}

pub fn receiver(place: &Place, told: &mut UnixStream) -> Result<Box<dyn Receive>, Failure> {
    let (mut subscribers, mut kept) = (Vec::new(), Vec::new());
    for size in SIZES {
        let (node, messages) = open(place, size)?;
        subscribers.push((size, messages.subscriber_builder().create()?));
        kept.push((node, messages));
    }
    say(told, &[])?;
    Ok(Box::new(Receiving { subscribers, _kept: kept }))
}

impl Receive for Receiving {
    fn receive(&mut self, size: usize, read: Reader<'_>) -> Result<(), Failure> {
        let (_, subscriber) = self.subscribers.iter().find(|(of, _)| *of == size).ok_or("no such size")?;
        loop {
            if let Some(sample) = subscriber.receive()? {
                return read(sample.payload());
            }
            std::hint::spin_loop();
        }
    }
}
